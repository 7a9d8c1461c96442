"""The readers of a run's candidates, one at a time in one sandbox, and their passes without disqualified ones."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_passbench.candidate.files import pack
from pytest_passbench.candidate.layout import Candidate, PassDir
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.settings import Policy
from pytest_passbench.judge.arms.arm import Arm
from pytest_passbench.judge.arms.failures import ArmFailure, is_fault
from pytest_passbench.judge.builder.build import Builder
from pytest_passbench.judge.builder.triton_build import TritonBuilder
from pytest_passbench.judge.planning.planner import Planner
from pytest_passbench.judge.planning.reader_process import start_reader

#: The digest of a candidate's files, and the path of one of its pass directories.
_Key = tuple[str, Path]


class CandidateReaders:
    """The readers of a run, one at a time, in one sandbox. Passes that broke a rule stay disqualified."""

    def __init__(self, policy: Policy, builder: Builder, triton: TritonBuilder, start: Callable[[], Arm]) -> None:
        """Set up without starting a sandbox. ``start`` starts one."""
        self._policy, self._builder, self._triton, self._start = policy, builder, triton, start
        self._arm: Arm | None = None
        #: The digest of the files in the sandbox, and their folder there.
        self._mounted = ("", "")
        self._readers: set[str] = set()  # the digests of all candidates whose files were in the sandbox
        self._planner: tuple[_Key, Planner] | None = None
        self._failures: dict[_Key, ArmFailure] = {}
        self._disqualified: dict[_Key, set[str]] = {}

    def begin(self) -> None:
        """Begin a new run: forget the candidates, their failures and their disqualified passes.

        The next candidate's files are put into the sandbox anew, which removes the files that are there.
        """
        self.forget()
        self._mounted = ("", "")
        self._failures.clear()
        self._disqualified.clear()
        self._builder.forget_failures()
        self._triton.forget_failures()

    def arm(self) -> Arm:
        """Return the sandbox of the readers. Start it if it does not run."""
        if self._arm is None or not self._arm.alive:
            self.close()
            self._arm = self._start()
        return self._arm

    def planner(self, candidate: Candidate, passes: PassDir) -> Planner:
        """Return the planner of a pass directory once its passes are loaded. Raises ArmFailure if they can't be."""
        key = candidate.content_hash, passes.path
        if key in self._failures:
            raise self._failures[key].with_traceback(None)
        self.arm()
        if self._planner is None or self._planner[0] != key:
            self.forget()
            where = candidate.folder(passes)
            inside = Path(self._show(candidate)) / where
            assert self._arm is not None  # :meth:`arm` may start another one, which would not have the files
            reader = start_reader(self._arm, str(inside), passes)
            self._planner = key, Planner(reader, self._builder, self._triton, self._policy, passes.path, where)
        planner = self._planner[1]
        try:
            planner.reader.passes()
        except ArmFailure as failure:
            if not is_fault(failure):
                self._failures[key] = failure
            self.forget()
            raise
        return planner

    def _show(self, candidate: Candidate) -> str:
        """Put a candidate's files into the sandbox, unless they are there. Return their folder there."""
        if self._mounted[0] != candidate.content_hash:
            with tempfile.TemporaryFile() as file:
                if pack(candidate.path, file) != candidate.content_hash:
                    remedy = "change no file of it until the run ends"
                    raise UserError("was changed while it was being judged", where=candidate.path, remedy=remedy)
                folder = self.arm().show(file)
                if folder is None:  # the candidate before left the sandbox in a state that cannot be cleaned
                    self.close()
                    folder = self.arm().show(file)
            if folder is None:
                raise UserError("the sandbox of the readers takes no files", remedy="see `passbench doctor`")
            self._mounted = candidate.content_hash, folder
            self._readers.add(candidate.content_hash)
        return self._mounted[1]

    def is_used(self, candidate: Candidate) -> bool:
        """Return True if another candidate was read in the sandbox, and may have left it in a bad state."""
        return bool(self._readers - {candidate.content_hash})

    def renew(self, candidate: Candidate, passes: PassDir) -> None:
        """End the sandbox, and forget how a pass directory failed in it. The next one is new."""
        self._failures.pop((candidate.content_hash, passes.path), None)
        self.close()

    def passes(self, candidate: Candidate, passes: PassDir) -> tuple[dict[str, Any], ...]:
        """Return the passes of a directory as data, without disqualified ones. Raises ArmFailure."""
        disqualified = self._disqualified.get((candidate.content_hash, passes.path), set())
        read = self.planner(candidate, passes).reader.passes()
        return tuple(item for item in read if item["name"] not in disqualified)

    def disqualify(self, candidate: Candidate, passes: PassDir, stems: set[str]) -> None:
        """Disqualify passes ``stems``, which broke a rule, from now on; all passes if none of these is there."""
        disqualified = stems & set(passes.stems) or set(passes.stems)
        self._disqualified.setdefault((candidate.content_hash, passes.path), set()).update(disqualified)

    def forget(self) -> None:
        """End the reader. The next call of :meth:`planner` starts another one."""
        if self._planner is not None:
            self._planner[1].reader.close()
            self._planner = None

    def close(self) -> None:
        self.forget()
        if self._arm is not None:
            self._arm.close()
            self._arm = None
            self._mounted = ("", "")
            self._readers.clear()
