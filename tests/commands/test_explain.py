"""``passbench explain``: a candidate read, its kernels compiled, its launch plans shown, and nothing judged."""

from __future__ import annotations

import json

import pytest

from pytest_passbench.commands.main import main

SILU = "def forward(in_0, in_1):\n    return (torch.nn.functional.silu(in_0) + in_1,)\n"


@pytest.fixture
def honest(bench, gelu_add_pass):
    return bench.candidate({"p": gelu_add_pass}, name="honest")


def test_an_honest_candidate_has_nothing_against_it(honest, capsys):
    assert main(["explain", str(honest)]) == 0
    assert capsys.readouterr().out == "1 pass read, 0 violations, 0 errors, 0 warnings\n"


@pytest.mark.slow
def test_launch_plans_are_shown_for_a_task(bench, honest, capsys):
    task = bench.task()
    assert main(["explain", str(honest), str(task)]) == 0
    assert capsys.readouterr().out.splitlines()[-4:] == [
        "  1: p replaces tmp_0, tmp_1",
        "     p runs, for float32-x1:",
        "       allocate b0: float32 [16, 32]",
        "       launch gelu_add(a0, a1, b0, 512)",
    ]


@pytest.mark.slow
def test_launch_plans_are_shown_as_json(bench, honest, capsys):
    main(["explain", str(honest), str(bench.task()), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["findings"] == []
    assert told["plans"][0]["task"] == told["matched"][0]["task"] == "gelu-add"
    assert told["plans"][0]["plan"]["kernels"][0]["cpp"][3] == "gelu_add"


@pytest.mark.slow
def test_the_task_is_named_by_its_id_or_by_the_path_that_pytest_prints(honest, capsys, monkeypatch):
    monkeypatch.chdir(honest)
    for word in ("gelu-add-mul", "tasks/text/gelu-add-mul.task.yaml"):
        assert main(["explain", str(honest), word]) == 1
        assert "passbench: error: " in capsys.readouterr().err
    for word in ("silu-mul-e747", "tasks/text/silu-mul-e747.task.yaml"):
        assert main(["explain", str(honest), word]) == 1  # no pass matches
        assert "no pass matches:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("exchange", "rule", "severity"),
    [
        ((("#include <cmath>", "#include <sys/syscall.h>\n#include <cmath>"),), "native-include", "violation"),
        pytest.param(
            (("{\n    for", "{\n    static int64_t calls; calls++;\n    for"),),
            "native-state",
            "violation",
            marks=pytest.mark.slow,
        ),
        ((("def replacement_func", "def replacement_fun"),), "fault", "error"),
        pytest.param(
            (("functional.gelu(x) + y", "functional.glue(x) + y"),), "pattern", "error", marks=pytest.mark.slow
        ),
    ],
)
def test_what_speaks_against_a_candidate_is_found_without_a_task(
    bench, gelu_add_pass, capsys, exchange, rule, severity
):
    text = gelu_add_pass
    for old, new in exchange:
        assert old in text
        text = text.replace(old, new)
    folder = bench.candidate({"p": text}, name="foul")
    assert main(["explain", str(folder), "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["rule"], finding["severity"]) == (rule, severity)


KERNEL = """
#include <cmath>
#include <cstdint>
extern "C" void gelu_add(const float* x, const float* y, float* out, int64_t n) {
  for (int64_t i = 0; i < n; i++) out[i] = x[i] + y[i];
}
"""
TOTL = KERNEL.replace("x[i] +", "totl +")
LAUNCH = "out = torch.empty_like(x)\nlib.gelu_add(x, y, out, x.numel())\nreturn out"


@pytest.fixture
def audited(bench, wrapper, capsys):
    """Audit a pass whose module has ``head`` before its functions. Return code, output, and the module's lines."""

    def audit(head, **helpers):
        text = wrapper(LAUNCH, f"from pytest_passbench.kernels import cpp\n{head}")
        folder = bench.candidate({"p": text}, name="mine", **helpers)
        code = main(["explain", str(folder)])
        return code, capsys.readouterr().out.splitlines(), (folder / "p.py").read_text().splitlines()

    return audit


def line_with(word, text):
    return 1 + next(number for number, line in enumerate(text) if word in line)


def test_a_kernel_that_does_not_compile_is_an_error_at_the_line_of_its_file(audited):
    code, said, text = audited(f"lib = cpp.load('''{TOTL}''')")
    assert code == 1
    assert said == [
        f"p.py:{line_with('totl', text)}: error [compile] 'totl' was not declared in this scope",
        "    for (int64_t i = 0; i < n; i++) out[i] = totl + y[i];",
        "                                             ^",
        "1 pass read, 0 violations, 1 error, 0 warnings",
    ]


@pytest.mark.slow
def test_an_error_of_a_kernel_is_told_once_if_passes_match_with_it(bench, wrapper, capsys):
    head = f"from pytest_passbench.kernels import cpp\nlib = cpp.load('''{TOTL}''')"
    folder = bench.candidate({"p": wrapper(LAUNCH, head)}, name="mine")
    assert main(["explain", str(folder), str(bench.task(dtypes=("float32", "float16")))]) == 1
    out = capsys.readouterr().out
    assert out.count("'totl' was not declared in this scope") == 1
    assert "error [compile] 'totl'" in out
    assert "violation [" not in out


@pytest.mark.slow
def test_a_wrapper_that_raises_is_an_error_and_no_violation(bench, wrapper, capsys):
    folder = bench.candidate({"p": wrapper("raise ValueError('no such luck')")}, name="mine")
    assert main(["explain", str(folder), str(bench.task())]) == 1
    out = capsys.readouterr().out
    assert out.count("error [runtime_fail] pass p: ValueError: no such luck") == 1
    assert "violation [" not in out


@pytest.mark.slow
def test_a_long_line_is_marked_where_it_is_cut(audited):
    long = "out[0] = x[0] + y[0]" + " + x[0] * y[0]" * 20
    for wrong, marks in ((f"totl = 1; {long};", (False, True)), (f"{long}; totl = 1;", (True, False))):
        _, said, _ = audited(f"lib = cpp.load('''{KERNEL.replace('}', wrong + chr(10) + '}')}''')")
        excerpt, caret = said[1:3]
        assert (excerpt.startswith("    ..."), excerpt.endswith("...")) == marks
        assert excerpt[caret.index("^") :].startswith("totl")


@pytest.mark.slow
def test_three_errors_of_a_kernel_are_shown_and_the_others_counted(audited):
    lines = "".join(f"  out[0] = none_{number};\n" for number in range(8))
    text = KERNEL.replace("}", lines + "}")
    _, said, _ = audited(f"lib = cpp.load('''{text}''')")
    errors = [line.partition("error [compile] ")[2] for line in said if "error [compile]" in line]
    assert errors == [f"'none_{number}' was not declared in this scope" for number in range(3)]
    assert said[-2:] == ["and 5 more errors", "1 pass read, 0 violations, 3 errors, 0 warnings"]


def test_errors_behind_a_header_are_shown_once_where_it_was_used(audited):
    kernel = """
#include "passbench.h"
template <class T> void run(const T* x, const T* y, T* out, int64_t n) {
  pb::map(n, out, [&](pb::vec a, pb::vec b) { return "no number"; }, x, y);
}
extern "C" void gelu_add(pb::in x, pb::in y, pb::out out, int64_t n, pb::dtype dtype) {
  pb::dispatch(dtype, [&](auto t) { run<decltype(t)>(x, y, out, n); });
}
"""
    code, said, text = audited(f"lib = cpp.load('''{kernel}''')")
    at = line_with("pb::map", text)
    assert code == 1
    assert said[0].startswith(f"p.py:{at}: error [compile] ")
    assert said[1].strip() == text[at - 1].strip()
    assert said[3:] == ["1 pass read, 0 violations, 1 error, 0 warnings"]


@pytest.mark.parametrize(
    "helper",
    [
        "SOURCE = '''{}'''",
        pytest.param("SOURCE = '#include <cmath>\\n' + '''{}'''", marks=pytest.mark.slow),
    ],
)
def test_a_text_of_a_helper_is_found_there(audited, helper):
    text = helper.format(TOTL)
    _, said, _ = audited("from pass_dir import texts\nlib = cpp.load(texts.SOURCE)", texts=text)
    at = line_with("totl", text.splitlines())
    assert said[0] == f"texts.py:{at}: error [compile] 'totl' was not declared in this scope"


def test_the_lines_of_a_generated_text_are_its_own(audited):
    text = KERNEL.replace("x[i] +", "LEFT +")
    _, said, text = audited(f"SOURCE = '''{text}'''\nlib = cpp.load(SOURCE.replace('LEFT', 'totl'))")
    place = f"p.py:{line_with('cpp.load', text)}"
    assert said[0] == (
        f"{place}: error [compile] line 5 of the C++ text that p.py loads: 'totl' was not declared in this scope"
    )
    assert said[1].strip() == "for (int64_t i = 0; i < n; i++) out[i] = totl + y[i];"


def test_a_kernel_that_prints_is_an_error_at_its_line(audited):
    text = KERNEL.replace("cmath", "iostream")
    code, said, text = audited(f"lib = cpp.load('''{text}''')")
    assert code == 1
    place = f"p.py:{line_with('iostream', text)}"
    assert said[0].startswith(
        f"{place}: error [compile] #include <iostream>: a measured process has nothing to print"
    )


@pytest.mark.slow
def test_a_judged_kernel_fails_with_the_same_places(bench, wrapper):
    bench.task(dtypes=("float32",))
    root = bench.candidate(
        {"p": wrapper(LAUNCH, f"from pytest_passbench.kernels import cpp\nlib = cpp.load('''{TOTL}''')")}
    )
    (record,) = bench.judge().values()
    at = line_with("totl", (root / "p.py").read_text().splitlines())
    assert (record.arm.status, record.arm.phase) == ("compile_fail", "compile")
    assert record.arm.message.splitlines() == [
        f"{root}/p.py:{at}: error: 'totl' was not declared in this scope",
        "    for (int64_t i = 0; i < n; i++) out[i] = totl + y[i];",
        "                                             ^",
    ]


def test_a_wrapper_that_computes_with_torch_is_found_on_a_task(bench, wrapper, capsys):
    folder = bench.candidate({"p": wrapper("return torch.nn.functional.gelu(x) + y")}, name="foul")
    task = bench.task()
    assert main(["explain", str(folder), str(task)]) == 1
    assert "p.py:10: violation [torch-op] pass p: the kernel wrapper computes with torch" in capsys.readouterr().out


@pytest.mark.slow
def test_a_wrapper_that_computes_with_torch_is_fine_without_a_task_and_by_the_open_policy(bench, wrapper):
    folder = bench.candidate({"p": wrapper("return torch.nn.functional.gelu(x) + y")}, name="foul")
    assert main(["explain", str(folder)]) == 0
    assert main(["explain", str(folder), str(bench.task()), "--policy", "open"]) == 0


def test_a_folder_that_is_no_candidate_is_told_of(tmp_path, capsys):
    assert main(["explain", str(tmp_path)]) == 1
    assert "the candidate directory is empty" in capsys.readouterr().err


@pytest.mark.slow
def test_several_tasks_are_explained_one_after_the_other(bench, honest, capsys):
    paths = [str(bench.task(name)) for name in ("first", "second")]
    assert main(["explain", str(honest), *paths]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line in ("first:", "second:")] == ["first:", "second:"]
    assert lines.count("  1: p replaces tmp_0, tmp_1") == 2


def test_options_that_do_not_go_together_are_refused(bench, honest, capsys):
    assert main(["explain", str(honest), "--subgraph", "x"]) == 1
    assert "name one task before it" in capsys.readouterr().err
    assert main(["explain", str(honest), "--suite", "lite"]) == 1
    assert "add --all or --missed" in capsys.readouterr().err


@pytest.fixture
def several(bench, gelu_add_pass):
    bench.task("a-matches")
    bench.task("b-misses", source=SILU, ops=("silu", "add"))
    bench.task("c-faulty")
    bench.candidate({"p": gelu_add_pass})
    bench.candidate({"p": "def pattern(x):"}, task="c-faulty")
    return bench


@pytest.mark.slow
def test_tasks_that_match_or_whose_passes_are_faulty_are_listed(several, capsys):
    assert main(["explain", str(several.folder / "cand"), str(several.tasks), "--all"]) == 1
    out, err = capsys.readouterr()
    matching, faulty = out.splitlines()
    assert matching.split(maxsplit=1) == ["a-matches", "1/1 subgraphs, by p"]
    assert faulty.startswith("c-faulty   cannot be told: ")
    assert err.splitlines()[-1] == "1 of 3 tasks matched, 1 cannot be told"


@pytest.mark.slow
def test_a_task_that_is_named_twice_is_listed_once(several, capsys):
    command = ["explain", str(several.folder / "cand"), str(several.tasks), f"{several.tasks}/a-matches.task.yaml"]
    (several.tasks / "c-faulty.task.yaml").unlink()
    assert main([*command, "--all"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.slow
def test_tasks_that_no_pass_matches_are_listed_if_asked_for(several, capsys):
    command = ["explain", str(several.folder / "cand"), str(several.tasks), "--missed"]
    (several.tasks / "c-faulty.task.yaml").unlink()
    assert main(command) == 0
    assert capsys.readouterr().out == (
        "b-misses   p: nearest: add (add): argument input: expected gelu, found silu (silu)\n"
    )
    (several.tasks / "b-misses.task.yaml").unlink()
    assert main(command) == 1
    assert capsys.readouterr().out == ""


def test_options_about_plans_are_refused_in_a_list_of_tasks(bench, gelu_add_pass, capsys):
    root = bench.candidate({"p": gelu_add_pass})
    assert main(["explain", str(root), "--all", "--sanitize"]) == 1
    assert "--sanitize: has no effect with --all or --missed" in capsys.readouterr().err


def test_a_candidate_that_matches_nothing(bench, gelu_add_pass, capsys):
    bench.task("misses", source=SILU, ops=("silu", "add"))
    root = bench.candidate({"p": gelu_add_pass})
    assert main(["explain", str(root), str(bench.tasks), "--all"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[-1]) == ("", "0 of 1 tasks matched")


@pytest.mark.slow
def test_the_share_of_a_task_that_matches_is_told(bench, gelu_add_pass, capsys):
    path = bench.task("half", dtypes=("float32", "float16"))
    used_twice = """\
  g1: |
    def forward(in_0, in_1):
        tmp_0 = torch.nn.functional.gelu(in_0)
        return (tmp_0, tmp_0 + in_1)
"""
    head, _, subgraphs = path.read_text().replace("subgraphs: 2\n---", "subgraphs: 4\n---").rpartition("subgraphs:\n")
    more = subgraphs.replace("graph: g0", "graph: g1").replace("- id: ", "- id: other-")
    path.write_text(f"{head}{used_twice}subgraphs:\n{subgraphs}{more}")
    assert main(["explain", str(bench.candidate({"p": gelu_add_pass})), str(path), "--all"]) == 0
    assert capsys.readouterr().out == "half  2/4 subgraphs, by p\n"
