"""Bad input to the plugin: one line that says what to do, and nothing left behind."""

import pytest

from trncheck.fixtures.manifest import RELEASES_DIR

GOOD = (RELEASES_DIR / "2.33.0.yaml").read_text()
PROVENANCE = "    provenance:\n"


def refusal(ended) -> str:
    """The one line that the user reads."""
    assert ended.status == 4, ended.out + ended.err
    assert "Traceback" not in ended.out + ended.err
    assert "INTERNALERROR" not in ended.out + ended.err
    assert not ended.run_folders
    (line,) = [line for line in ended.err.splitlines() if line.strip()]
    assert line.startswith("ERROR: ")
    return line


@pytest.mark.parametrize("further", [(), ("--collect-only",)])
def test_unknown_release_names_the_known_ones(inner, further):
    line = refusal(inner.run("--release", "2.34.9", *further))
    assert "'2.34.9'" in line
    assert "known releases: " in line
    assert "2.33.0" in line


def test_manifest_with_an_unknown_field_is_refused_with_file_and_line(inner):
    (inner.folder / "mine.yaml").write_text(GOOD.replace("\ntitle:", "\ntitel:"))
    line = refusal(inner.run("--release", "mine.yaml"))
    number = GOOD.splitlines().index(next(row for row in GOOD.splitlines() if row.startswith("title:"))) + 1
    assert f"mine.yaml:{number}: titel: unknown field" in line


def test_number_without_provenance_is_refused_with_file_and_line(inner):
    start = GOOD.index(PROVENANCE)
    end = GOOD.index("    doubt:")
    (inner.folder / "mine.yaml").write_text(GOOD[:start] + GOOD[end:])
    line = refusal(inner.run("--release", "./mine.yaml"))
    number = GOOD[:start].splitlines().index("  - name: step1_loss_published_weights") + 1
    assert f"mine.yaml:{number}: expectations[0].provenance: missing field" in line


def test_absent_manifest_is_refused(inner):
    assert "no.yaml: cannot read the release manifest" in refusal(inner.run("--release", "no.yaml"))


def test_trn2_without_a_device_is_refused_with_a_remedy(inner):
    line = refusal(inner.run("--target", "trn2"))
    assert "no Neuron device" in line
    assert "--target cpu" in line


@pytest.mark.parametrize("processes", ["0", "1"])
def test_results_folder_that_cannot_be_written_is_refused(inner, processes):
    (inner.folder / "taken").write_text("a file in its place")
    line = refusal(inner.run("--results", "taken", "--check", "pins.stack", "-n", processes))
    assert "taken/2.33.0/cpu/" in line
    assert "choose another results folder" in line
    assert [file.name for file in inner.folder.iterdir()] == ["taken"]


@pytest.mark.parametrize("processes", ["0", "1"])
def test_misspelt_check_is_refused_with_a_close_id(inner, processes):
    line = refusal(inner.run("--check", "pins.imposters", "-n", processes))
    assert "pins.imposters; did you mean pins.impostors" in line


def test_check_of_a_higher_level_is_refused_with_the_level(inner):
    line = refusal(inner.run("--check", "losses.full_size_random_start"))
    assert "no check of level standard matches losses.full_size_random_start" in line
