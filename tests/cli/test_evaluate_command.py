"""The two commands from end to end on a tiny model: what a person types, what they get."""

import csv
import io
import json
import re
import shutil
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from s2sent.cli.compare import compare, parse_method
from s2sent.cli.evaluate import evaluate
from s2sent.errors import ConfigError, S2SentError
from tiny_senteval import write_folder

app = typer.Typer()
app.command()(evaluate)
app.command()(compare)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("senteval"))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three randomly initialised models of the same shape, as three seeds of one recipe would be."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    root = tmp_path_factory.mktemp("models")
    vocabulary = {
        word: index for index, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *map(chr, range(97, 123))])
    }
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )
    for seed in (1, 2, 10):
        torch.manual_seed(seed)
        config = BertConfig(
            vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=16, initializer_range=0.3,
        )  # fmt: skip
        BertModel(config).save_pretrained(root / "plain")
        fast.save_pretrained(root / "plain")
        transformer = Transformer(str(root / "plain"), max_seq_length=64)
        SentenceTransformer(modules=[transformer, Pooling(16)]).save(str(root / "tiny" / f"seed-{seed}"))
    return root / "tiny"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("S2SENT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("S2SENT_DATA", raising=False)


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit | S2SentError):
        raise result.exception
    return result


def test_the_seven_scores_and_their_average(folder: Path, models: Path) -> None:
    arguments = ("evaluate", models / "seed-1", "--data", folder)
    result = run(*arguments, "--format", "json")
    report = json.loads(result.stdout)
    assert list(report["scores"])[:8] == ["STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", "STS avg"]
    assert (report["aggregation"], report["text"], report["model"]) == ("all", "file", "seed-1")
    headlines = {result["task"]: result["details"]["subsets"] for result in report["results"]}["STS15"]
    assert set(headlines) == {"answers-forums", "answers-students", "belief", "headlines", "images"}
    table = run(*arguments, "--interval")
    assert f"{report['scores']['STS avg']:.2f}" in table.stdout
    assert "95 % interval" in table.stdout
    assert "60 samples where SentEval has 3,108" in " ".join(table.stdout.split())
    rows = list(csv.DictReader(io.StringIO(run(*arguments, "--interval", "--format", "csv").stdout)))
    assert float(rows[0]["low"]) < report["scores"]["STS12"] < float(rows[0]["high"])


def test_every_table_says_how_its_scores_were_computed(folder: Path, models: Path, tmp_path: Path) -> None:
    common = ("evaluate", models / "seed-1", "--data", folder)
    sts = "STS: Spearman × 100 of cosine, aggregation mean, text file. Samples: STS12 60."
    for style in ("table", "markdown", "latex"):
        result = run(*common, "--tasks", "STS12", "--aggregation", "mean", "--format", style)
        assert sts in result.stdout
    score = json.loads(run(*common, "--tasks", "STS12", "--aggregation", "mean", "--format", "json").stdout)["scores"]
    fresh = run(*common, "--tasks", "STS12", "--aggregation", "mean", "--no-cache", "--name", "run[/x]")
    assert f"run[/x] STS12 {score['STS12']:.2f}" in fresh.stderr  # as in the table, not `all`
    assert "run[/x]" in fresh.stdout
    transfer = run(*common, "--tasks", "CR", "--probes", "fast").stdout
    assert "Transfer: accuracy of linear probes, fast configuration. Samples: CR 60." in transfer
    assert "Spearman" not in transfer


def test_figures_files_and_geometry(folder: Path, models: Path, tmp_path: Path) -> None:
    common = ("evaluate", models / "seed-1", "--data", folder, "--geometry")
    result = run(
        *common, "--tasks", "STS12", "--format", "markdown",
        "--output", tmp_path / "deep" / "table.md", "--density", tmp_path / "d.png", "--scatter", tmp_path / "s.png",
    )  # fmt: skip
    assert result.exit_code == 0
    table = (tmp_path / "deep" / "table.md").read_text()
    assert table.startswith("|  | STS12 |")
    assert re.search(r"STS-B: alignment \d\.\d+ \(\d+ close pairs\), uniformity -\d\.\d+, anisotropy 0\.\d+", table)
    assert (tmp_path / "d.png").stat().st_size > 5000
    assert (tmp_path / "s.png").stat().st_size > 5000
    again = run(*common, "--tasks", "STS-B", "--format", "json")
    assert again.stderr.strip() == ""  # what was scored with STS-B is there
    shape = json.loads(again.stdout)["geometry"]
    assert f"anisotropy {shape['anisotropy']:.3f}" in table
    rows = list(csv.DictReader(io.StringIO(run(*common, "--tasks", "STS-B", "--format", "csv").stdout)))
    assert [row["task"] for row in rows] == ["STS-B", "alignment", "uniformity", "anisotropy"]
    assert float(rows[1]["score"]) == shape["alignment"]


def test_every_block_is_scored(folder: Path, models: Path) -> None:
    arguments = ("evaluate", models / "seed-1", "--data", folder, "--tasks", "STS-B,STS12", "--aggregation", "wmean")
    found = json.loads(run(*arguments, "--per-block", "--format", "json", "--name", "tiny").stdout)
    blocks = found["blocks"]
    assert (found["model"], found["aggregation"], found["text"]) == ("tiny", "wmean", "file")
    assert list(blocks) == ["embeddings", "block 1", "block 2"]
    whole = json.loads(run(*arguments, "--format", "json").stdout)["scores"]
    assert blocks["block 2"] == pytest.approx(whole, abs=0.02)  # mean pooling of the last block is the model itself
    assert blocks["block 1"] != blocks["block 2"]
    table = run(*arguments, "--per-block").stdout
    assert f"**{max(scores['STS12'] for scores in blocks.values()):.2f}**" in table
    assert "seed-1: mean over tokens" in table
    assert "aggregation wmean, text file" in table
    assert "seed-1,block 1,STS-B," in run(*arguments, "--per-block", "--format", "csv").stdout
    for option in ("--interval", "--geometry"):
        assert isinstance(run(*arguments, "--per-block", option).exception, ConfigError)
    error = run(*arguments[:4], "--tasks", "STS12,MR", "--per-block").exception
    assert isinstance(error, ConfigError)
    assert "MR is none" in str(error)


def test_a_folder_of_seeds_is_one_method(folder: Path, models: Path, tmp_path: Path) -> None:
    common = ("--data", folder, "--tasks", "STS12,STS-B")
    result = run("compare", f"ours={models}", f"same={models}", "--baseline", "same", *common, "--format", "json")
    table = json.loads(result.stdout)
    assert table["rows"]["ours"]["STS12"]["runs"] == 3
    assert table["rows"]["ours"]["STS12"]["p"] == 1.0
    assert "paired t-test" in table["how"]
    picture = run("compare", models / "seed-1", models / "seed-2", *common, "--density", tmp_path / "d.png")
    assert picture.exit_code == 0
    assert (tmp_path / "d.png").stat().st_size > 5000
    assert "seed-2" in picture.stdout


def test_mistakes_are_told_before_the_work(folder: Path, models: Path, tmp_path: Path) -> None:
    one, two = models / "seed-1", models / "seed-2"
    other = tmp_path / "other"
    for source, name in (("seed-1", "seed-1"), ("seed-2", "seed-3"), ("seed-10", "seed-10")):
        shutil.copytree(models / source, other / name)
    (tmp_path / "file").touch()
    for arguments, words in [
        (("evaluate", one), "neither --data nor S2SENT_DATA"),
        (("evaluate", tmp_path / "nowhere", "--data", folder), "no model folder"),
        (("evaluate", one, "--data", folder, "--tasks", "STS99"), "no task 'STS99'"),
        (("evaluate", one, "--data", folder, "--output", tmp_path / "file" / "x"), "file/x cannot be written"),
        (("evaluate", one, "--data", folder, "--output", tmp_path), "cannot be written: Is a directory"),
        (("evaluate", one, "--data", "hub", "--tasks", "TREC", "--text", "raw"), "no raw text of TREC"),
        (("compare", one, "--data", folder, "--baseline", "x"), "none of seed-1"),
        (("compare", one, two, "--data", folder, "--level", "2"), "level must be between"),
        (("compare", one, two, "--data", folder, "--resamples", "0"), "resamples must be at least 100"),
        (("compare", one, one, "--data", folder), "Two methods have one name"),
        (("compare", one, tmp_path / "nowhere", "--data", folder), "no model folder"),
        (("compare", one, two, "--data", folder, "--output", tmp_path / "file" / "x"), "file/x cannot be written"),
        (("compare", f"a={one},{two}", f"b={one}", "--baseline", "a", "--data", folder), "as many as the baseline"),
        (
            ("compare", f"a={models}", f"b={other}", "--baseline", "a", "--data", folder),
            "b has seed-1, seed-3, seed-10",
        ),
    ]:
        result = run(*arguments)
        assert isinstance(result.exception, S2SentError)
        assert words in str(result.exception)
        assert result.stderr.strip() == ""  # where finished tasks are told
    assert not (tmp_path / "cache").exists()


def test_how_methods_are_named(models: Path, tmp_path: Path) -> None:
    seeds = [str(models / f"seed-{seed}") for seed in (1, 2, 10)]
    assert parse_method(str(models)) == ("tiny", seeds, False)  # 2 before 10
    assert parse_method(f"ours={models}") == ("ours", seeds, False)
    assert parse_method(f"two={seeds[0]},{seeds[2]}") == ("two", [seeds[0], seeds[2]], True)
    assert parse_method("org/name") == ("org/name", ["org/name"], True)
    with pytest.raises(ConfigError, match="names no model"):
        parse_method("ours=")
    with pytest.raises(ConfigError, match="holds none"):
        parse_method(str(tmp_path))
    names = ["lr-2-seed-1", "lr-10-seed-1", "lr-2-seed-10", "x²", "lr-2-seed-9"]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").touch()
    found = [Path(path).name for path in parse_method(str(tmp_path)).paths]
    assert found == ["lr-2-seed-1", "lr-2-seed-9", "lr-2-seed-10", "lr-10-seed-1", "x²"]
