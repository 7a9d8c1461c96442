// The page's script: the table of tasks sorted, filtered and opened, and the rounds of an opened subgraph drawn.
// Texts of the run are put into the page as text alone, never as markup.
"use strict";
(() => {
  /**
   * @typedef {{columns: string[], rows: any[][], texts: string[], alphabet: string, tasks: [string, number, number][],
   *   commands: string[]}} Data
   * @typedef {{round: number, pair: number, odd: number, ratio: number}} Round
   * @typedef {(string | Node | null)[]} Children
   */

  /** @type {Data} */
  const data = JSON.parse(document.getElementById("data")?.textContent ?? "{}");
  const dash = "–";

  /**
   * Return an element with attributes and children.
   * @param {string} name @param {Record<string, string>} attributes @param {Children} children @returns {HTMLElement}
   */
  function make(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children.filter((child) => child !== null));
    return made;
  }

  /** Return the text of a number. @param {number} index @returns {string} */
  const text = (index) => data.texts[index] ?? "";

  // ---------------------------------------------------------------------------------------------------------- charts

  /** Return an SVG element. @param {string} name @param {Record<string, string | number>} attributes @param {Children} children @returns {SVGElement} */
  function shape(name, attributes, ...children) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
    element.append(...children.filter((child) => child !== null));
    return element;
  }

  /** Return at least three round values between two positive ones, if there are so many. @param {number} low @param {number} high */
  function ticks(low, high) {
    for (const step of [1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01]) {
      const size = step * 10 ** Math.floor(Math.log10(high));
      const count = Math.floor(high / size) - Math.ceil(low / size) + 1;
      if (count >= 3) return Array.from({ length: count }, (_, i) => Number(((Math.ceil(low / size) + i) * size).toPrecision(4)));
    }
    return [low, high].map((value) => Number(value.toPrecision(4)));
  }

  /**
   * Return the chart of a subgraph's rounds, on a logarithmic axis that has 1. Places across are shares of its width.
   * @param {Round[]} rounds @param {number[]} speed the ratio, and the ends of its interval
   */
  function roundsChart(rounds, speed) {
    const [height, foot] = [190, 44];
    const [ratio, low] = speed;
    const high = Number.isFinite(speed[2]) ? speed[2] : Infinity;
    const values = [...rounds.map((round) => round.ratio), ratio, 1];
    const spare = 0.04 * Math.log(Math.max(...values) / Math.min(...values)) + 0.005;
    const [least, most] = [Math.min(...values) * Math.exp(-spare), Math.max(...values) * Math.exp(spare)];
    /** @param {number} value */
    const y = (value) => height * (1 - Math.log(Math.min(Math.max(value, least), most) / least) / Math.log(most / least));
    /** @param {number} number */
    const x = (number) => `${(100 * (number - 0.5)) / rounds.length}%`;
    /** @param {number} at @param {Record<string, string | number>} look */
    const across = (at, look) => shape("line", { x1: 0, x2: "100%", y1: y(at), y2: y(at), ...look });
    /** @param {Record<string, string | number>} look @param {string | number} words */
    const label = (look, words) => shape("text", { fill: "var(--soft)", "font-size": 12, ...look }, String(words));
    const axis = ticks(least, most).flatMap((value) =>
      [across(value, { stroke: "var(--line)" }), label({ x: 0, dx: -8, y: y(value) + 4, "text-anchor": "end" }, value)]);
    const every = Math.max(1, Math.ceil(rounds.length / 8 / 10) * 10);
    const numbers = rounds.filter((round) => round.round === 1 || round.round % every === 0)
      .map((round) => label({ x: x(round.round), y: height + 18, "text-anchor": "middle" }, round.round));
    const band = { x: 0, width: "100%", y: y(high), height: Math.max(1, y(low) - y(high)), fill: "var(--one)", opacity: 0.16 };
    const points = rounds.map((round) => shape("svg", { x: x(round.round), y: y(round.ratio), class: "point" },
      shape("path", { d: round.odd ? "M0-3.4L3.2 2.4H-3.2Z" : "M-2.9 0a2.9 2.9 0 1 0 5.8 0a2.9 2.9 0 1 0-5.8 0", fill: "none",
        stroke: round.odd ? "var(--two)" : "var(--one)", "stroke-width": 1.2 }),
      shape("title", {}, `round ${round.round}, pair ${round.pair} of processes: ${round.ratio.toFixed(3)}`)));
    return shape("svg", { class: "chart plain", width: "100%", height: height + foot, role: "img", "aria-label": `Speed-up of each of ${rounds.length} rounds` },
      ...axis, ...numbers, shape("rect", band), across(1, { stroke: "var(--ink)" }),
      across(ratio, { stroke: "var(--one)", "stroke-width": 2, "stroke-dasharray": "6 3" }), ...points,
      label({ x: "50%", y: height + 38, "text-anchor": "middle" }, "round, in the order of measuring"));
  }

  /** @param {any[]} packed @returns {{rounds: Round[], every: number}} */
  function unpack(packed) {
    const [least, greatest, lengths, every, letters] = packed;
    const size = data.alphabet.length;
    /** @type {Round[]} */
    const rounds = [];
    let at = 0;
    lengths.forEach((/** @type {number} */ length, /** @type {number} */ number) => {
      for (let i = 0; i < length; i += 1, at += 1) {
        const place = size * data.alphabet.indexOf(letters[2 * at]) + data.alphabet.indexOf(letters[2 * at + 1]);
        const ratio = Math.exp(least + ((greatest - least) * place) / (size * size - 1));
        rounds.push({ round: at + 1, pair: number * every + 1, odd: number % 2, ratio });
      }
    });
    return { rounds, every };
  }

  // --------------------------------------------------------------------------------------------------------- details

  /** @param {string[]} headers @param {Children[]} rows @param {number} words columns of words, at the left */
  function table(headers, rows, words = 1) {
    /** @type {(i: number) => Record<string, string>} */
    const kind = (i) => (i < words ? { class: "word" } : { class: "number" });
    return make("div", { class: "scroll" }, make("table", {},
      make("thead", {}, make("tr", {}, ...headers.map((name, i) => make("th", { scope: "col", ...kind(i) }, name)))),
      make("tbody", {}, ...rows.map((cells) => make("tr", {}, ...cells.map((cell, i) => make("td", kind(i), cell)))))));
  }

  /** @param {string} title @param {Children} children */
  const block = (title, ...children) => make("section", {}, make("h4", {}, title), ...children);

  /** @param {string} sign @param {string} kind @param {string} name */
  const tag = (sign, kind, name) =>
    make("span", { class: `tag ${kind}` }, make("span", { "aria-hidden": "true" }, sign), ` ${name}`);

  /** Return a row of the data by the names of its columns. @param {number} index @returns {Record<string, any>} */
  const subgraph = (index) => Object.fromEntries(data.columns.map((name, i) => [name, data.rows[index][i]]));

  /** @param {any} speed @returns {string} */
  const interval = (speed) => (Array.isArray(speed) && speed.length ? `${speed[0]} [${speed[1]}, ${speed[2]}]` : String(speed) || dash);

  /** Return the pass that matched with its launch plan. @param {any[]} item */
  function pass(item) {
    const [name, matches, operators, computed, plan, untuned] = item;
    const times = matches > 1 ? `, ${matches} matches` : "";
    const added = text(computed) ? make("p", {}, `Added to the graph: ${text(computed)}`) : null;
    const tuned = untuned ? make("p", {}, "Not tuned: the first valid configuration was taken.") : null;
    return make("div", {}, make("p", {}, make("code", {}, text(name)), ` covers ${text(operators)}${times}`), added, tuned,
      plan.length ? make("pre", {}, plan.map(text).join("\n")) : null);
  }

  /** Return what an opened subgraph shows. @param {Record<string, any>} details @param {string} command */
  function detail(details, command) {
    const parts = [];
    if (details.rounds.length) {
      const { rounds, every } = unpack(details.rounds);
      const thinned = every > 1 ? ` Of ${every} pairs one is shown.` : "";
      const caption = `Speed-up (log scale) of ${rounds.length} rounds; the shape and colour change with each pair of processes.${thinned} `
        + "Dashed: the estimate. Band: its 95 % interval. Line: 1, as fast as eager.";
      parts.push(block("Rounds", make("figure", {}, roundsChart(rounds, details.speed.map(Number)), make("figcaption", {}, caption))));
    }
    const matched = details.passes.map(pass);
    const errors = details.errors.length ? [table(["output", "eager", "candidate", "greatest ×", "mean ×"],
      details.errors.map((/** @type {string[]} */ row, /** @type {number} */ i) => [`${i}: ${row[0]}`, row[1] || dash, row[2] || dash,
        row[3] ? `${row[3]} (≤ ${row[5]})` : dash, row[4] ? `${row[4]} (≤ ${row[6]})` : dash])),
      make("p", { class: "about" }, "Greatest error against the graph in float64; × are the greatest and the mean error as ratios to eager's, with what they may be.")] : [];
    const levels = details.levels ? [make("p", {}, `Outputs agree with eager: ${details.levels}.`)] : [];
    const right = [];
    if (matched.length) right.push(block(matched.length > 1 ? "Passes that matched" : "Pass that matched, and its launch plan", ...matched));
    if (errors.length || levels.length) right.push(block("Error", ...levels, ...errors));
    if (details.baselines.length) right.push(block("Baselines", table(["baseline", "speed-up", "outcome"],
      details.baselines.map((/** @type {any[]} */ [name, speed, ending]) => [text(name), interval(speed), text(ending)]))));
    if (right.length) parts.push(make("div", {}, ...right));
    const messages = [
      ...details.texts.map((/** @type {number[]} */ [label, what]) => block(text(label), make("pre", {}, text(what)))),
      ...details.findings.map((/** @type {number[]} */ [severity, rule, what, place]) =>
        block(`${text(severity)}: ${text(rule)}${text(place) ? `, ${text(place)}` : ""}`, make("pre", {}, text(what)))),
    ];
    const failed = details.kind === "failed" && messages.length > 0;
    if (failed) parts.unshift(make("div", { class: "whole" }, ...messages));
    const wide = [
      ...(failed ? [] : messages),
      block("From", make("p", {}, [text(details.source), text(details.folder) && `passes of ${text(details.folder)}`,
        details.seconds ? `judged in ${details.seconds.toFixed(1)} s` : ""].filter(Boolean).join(" · "))),
      block("To judge the task again", make("pre", { class: "command" }, command)),
    ];
    parts.push(make("div", { class: "whole" }, ...wide));
    return make("div", { class: "detail" }, ...parts);
  }

  /**
   * Fill a row that opens, the first time. @param {HTMLButtonElement} button @param {() => HTMLElement} content
   * @param {boolean} [wanted] open or shut; by default the other of both
   */
  function toggle(button, content, wanted) {
    const open = wanted ?? button.getAttribute("aria-expanded") !== "true";
    const more = /** @type {HTMLElement} */ (document.getElementById(button.getAttribute("aria-controls") ?? ""));
    const cell = /** @type {HTMLElement} */ (more.firstElementChild);
    if (open && !cell.firstChild) cell.append(content());
    more.hidden = !open;
    button.setAttribute("aria-expanded", String(open));
  }

  /** Return the table of a task's subgraphs. @param {number} number of the task */
  function subgraphs(number) {
    const [key, start, count] = data.tasks[number];
    const body = make("tbody", {});
    for (let index = start; index < start + count; index += 1) {
      const details = subgraph(index);
      const id = `${key}-${index}`;
      const button = /** @type {HTMLButtonElement} */ (make("button", { type: "button", class: "open", "aria-expanded": "false", "aria-controls": id },
        make("span", { class: "mark", "aria-hidden": "true" }), text(details.subgraph)));
      button.addEventListener("click", () => toggle(button, () => detail(details, data.commands[number])));
      body.append(
        make("tr", {}, make("th", { scope: "row" }, button), make("td", { class: "number wide" }, details.eager || dash),
          make("td", { class: "number wide" }, details.candidate || dash), make("td", { class: "number" }, interval(details.speed)),
          make("td", {}, tag(details.sign, details.kind, text(details.ending)))),
        (() => { const row = make("tr", { id, class: "more" }, make("td", { colspan: "5" })); row.hidden = true; return row; })());
    }
    return make("div", { class: "inner" }, make("table", {},
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "subgraph"),
        make("th", { scope: "col", class: "number wide" }, "eager, µs a call"), make("th", { scope: "col", class: "number wide" }, "candidate, µs"),
        make("th", { scope: "col", class: "number" }, "speed-up [95 %]"), make("th", { scope: "col" }, "outcome"))), body));
  }

  // ----------------------------------------------------------------------------------------------------------- table

  const rows = /** @type {HTMLTableElement} */ (document.getElementById("rows"));
  const tasks = Array.from(rows.tBodies);
  const filter = /** @type {HTMLInputElement} */ (document.getElementById("filter"));
  const group = /** @type {HTMLSelectElement} */ (document.getElementById("group"));
  const candidate = /** @type {HTMLSelectElement | null} */ (document.getElementById("candidate"));
  const shown = /** @type {HTMLOutputElement} */ (document.getElementById("count"));

  const places = new Map(tasks.map((body, number) => [body, number]));
  const words = new Map(tasks.map((body) =>
    [body, `${body.rows[0].textContent} ${body.dataset.operators}`.toLowerCase().replace(/\s+/g, " ")]));

  /** @param {HTMLTableSectionElement} body @param {boolean} [wanted] */
  function open(body, wanted) {
    const button = /** @type {HTMLButtonElement} */ (body.querySelector("button.open"));
    if (!button.disabled) toggle(button, () => subgraphs(places.get(body) ?? 0), wanted);
  }

  function narrow() {
    const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const body of tasks) {
      const fits = wanted.every((word) => words.get(body)?.includes(word))
        && (!group.value || body.dataset.group?.split(" ").includes(group.value))
        && (!candidate?.value || body.dataset.candidate === candidate.value);
      body.hidden = !fits;
      count += fits ? 1 : 0;
    }
    shown.value = `${count} of ${tasks.length} rows`;
  }

  /** @param {HTMLButtonElement} button */
  function sort(button) {
    rows.append(...sorted(button, tasks, (body) => body.rows[0].cells));
  }

  /** Move the focus among the rows that can be seen, open or shut one. @param {KeyboardEvent} event */
  function move(event) {
    const at = /** @type {HTMLElement} */ (event.target).closest?.("button.open");
    if (!(at instanceof HTMLButtonElement) || event.altKey || event.ctrlKey || event.metaKey) return;
    const all = /** @type {HTMLButtonElement[]} */ (Array.from(rows.querySelectorAll("button.open:enabled"))).filter((one) => one.offsetParent !== null);
    const place = all.indexOf(at);
    const expanded = at.getAttribute("aria-expanded") === "true";
    /** @type {Record<string, () => void>} */
    const keys = {
      ArrowDown: () => all[Math.min(place + 1, all.length - 1)].focus(),
      ArrowUp: () => all[Math.max(place - 1, 0)].focus(),
      Home: () => all[0].focus(),
      End: () => all[all.length - 1].focus(),
      ArrowRight: () => { if (!expanded) at.click(); },
      ArrowLeft: () => { if (expanded) at.click(); },
    };
    const act = keys[event.key];
    if (act) {
      event.preventDefault();
      act();
    }
  }

  /** Open the task that the address names, and go there. */
  function visit() {
    const body = tasks.find((one) => one.id && `#${one.id}` === location.hash);
    if (!body) return;
    if (body.hidden) {
      filter.value = group.value = "";
      if (candidate) candidate.value = "";
      narrow();
    }
    open(body, true);
    body.scrollIntoView({ block: "start" });
    /** @type {HTMLElement | null} */ (body.querySelector("button.open"))?.focus({ preventScroll: true });
  }

  for (const body of tasks) body.querySelector("button.open")?.addEventListener("click", () => open(body));
  for (const button of rows.tHead?.querySelectorAll("button") ?? []) button.addEventListener("click", () => sort(button));
  for (const field of [filter, group, candidate]) field?.addEventListener("input", narrow);
  filter.form?.addEventListener("submit", (event) => event.preventDefault());
  rows.addEventListener("keydown", move);
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(/** @type {HTMLElement} */ (event.target).tagName);
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      filter.focus();
      filter.select();
    } else if (event.key === "Escape" && event.target === filter) {
      filter.value = "";
      narrow();
    } else if (event.key === "ArrowDown" && event.target === filter) {
      event.preventDefault();
      const first = tasks.find((body) => !body.hidden);
      Array.from(rows.tBodies).find((body) => !body.hidden && first)?.querySelector("button")?.focus();
    }
  });
  const failed = location.hash ? undefined : tasks.find((body) => body.dataset.group?.split(" ").includes("wrong"));
  if (failed) {
    open(failed, true);
    /** @type {HTMLButtonElement | null | undefined} */
    (failed.querySelector(".inner .tag.failed")?.closest("tr")?.querySelector("button.open"))?.click();
  }
  window.addEventListener("hashchange", visit);
  narrow();
  // Once it is loaded the browser goes to the place in the address, and takes the focus away.
  window.addEventListener("load", () => setTimeout(visit));
})();
