"""A sample of generated variants: no exploit gets through the source layer, no honest pass is accused.

``benchmarks/variants.py`` does the same over 1,000 and 500.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import variants
from pytest_passbench.candidate.audit import audit


def violations(folder: Path) -> list[str]:
    return [f"{f.file}:{f.line} {f.rule} {f.message}" for f in audit(folder) if f.severity == "violation"]


@pytest.mark.parametrize("name", variants.EXPLOITS)
def test_variants_of_an_exploit(name: str, tmp_path: Path) -> None:
    for seed in range(8):
        files = variants.variant(variants.CORPUS / "exploits" / name, seed)
        folder = variants.write(files, tmp_path / f"seed{seed}")
        assert violations(folder), "\n".join(files.values())


@pytest.mark.parametrize("name", variants.HONEST)
def test_variants_of_an_honest_pass(name: str, tmp_path: Path) -> None:
    for seed in range(4):
        files = variants.variant(variants.CORPUS / "honest" / name, seed)
        folder = variants.write(files, tmp_path / f"seed{seed}")
        assert violations(folder) == [], "\n".join(files.values())


def test_variants_are_repeatable_and_differ() -> None:
    folder = variants.CORPUS / "exploits" / "torch-direct"
    assert variants.variant(folder, 3) == variants.variant(folder, 3)
    assert len({str(variants.variant(folder, seed)) for seed in range(20)}) > 15
