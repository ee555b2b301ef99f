"""The two commands from end to end on a tiny model: what a person types, what they get."""

import json
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
    result = run("evaluate", models / "seed-1", "--data", folder, "--format", "json")
    report = json.loads(result.stdout)
    assert list(report["scores"])[:8] == ["STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", "STS avg"]
    assert (report["aggregation"], report["text"], report["model"]) == ("all", "file", "seed-1")
    headlines = {result["task"]: result["details"]["subsets"] for result in report["results"]}["STS15"]
    assert set(headlines) == {"answers-forums", "answers-students", "belief", "headlines", "images"}
    table = run("evaluate", models / "seed-1", "--data", folder, "--interval")
    assert f"{report['scores']['STS avg']:.2f}" in table.stdout
    assert "95 % interval" in table.stdout
    assert "60 samples where SentEval has 3,108" in " ".join(table.stdout.split())


def test_figures_files_and_geometry(folder: Path, models: Path, tmp_path: Path) -> None:
    result = run(
        "evaluate", models / "seed-1", "--data", folder, "--tasks", "STS12", "--geometry", "--format", "markdown",
        "--output", tmp_path / "deep" / "table.md", "--density", tmp_path / "d.png", "--scatter", tmp_path / "s.png",
    )  # fmt: skip
    assert result.exit_code == 0
    assert (tmp_path / "deep" / "table.md").read_text().startswith("|  | STS12 |")
    assert (tmp_path / "d.png").stat().st_size > 5000
    assert (tmp_path / "s.png").stat().st_size > 5000
    assert "alignment" in result.stderr
    assert "anisotropy" in result.stderr


def test_every_block_is_scored(folder: Path, models: Path) -> None:
    arguments = ("evaluate", models / "seed-1", "--data", folder, "--tasks", "STS-B,STS12")
    blocks = json.loads(run(*arguments, "--per-block", "--format", "json").stdout)["blocks"]
    assert list(blocks) == ["embeddings", "block 1", "block 2"]
    whole = json.loads(run(*arguments, "--format", "json").stdout)["scores"]
    assert blocks["block 2"] == pytest.approx(whole, abs=0.02)  # mean pooling of the last block is the model itself
    assert blocks["block 1"] != blocks["block 2"]
    assert "block 2" in run(*arguments, "--per-block").stdout
    assert "block 1,STS-B," in run(*arguments, "--per-block", "--format", "csv").stdout
    assert isinstance(run(*arguments[:4], "--tasks", "MR", "--per-block").exception, ConfigError)


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


def test_mistakes_are_told(folder: Path, models: Path, tmp_path: Path) -> None:
    for arguments, words in [
        (("evaluate", models / "seed-1"), "neither --data nor S2SENT_DATA"),
        (("evaluate", tmp_path / "nowhere", "--data", folder), "no model folder"),
        (("evaluate", models / "seed-1", "--data", folder, "--tasks", "STS99"), "no task 'STS99'"),
        (("compare", models / "seed-1", "--data", folder, "--baseline", "x"), "none of seed-1"),
    ]:
        error = run(*arguments).exception
        assert isinstance(error, S2SentError)
        assert words in str(error)


def test_how_methods_are_named(models: Path, tmp_path: Path) -> None:
    seeds = [str(models / f"seed-{seed}") for seed in (1, 2, 10)]
    assert parse_method(str(models)) == ("tiny", seeds)  # 2 before 10
    assert parse_method(f"ours={models}") == ("ours", seeds)
    assert parse_method(f"two={seeds[0]},{seeds[2]}") == ("two", [seeds[0], seeds[2]])
    assert parse_method("org/name") == ("org/name", ["org/name"])
    with pytest.raises(ConfigError, match="names no model"):
        parse_method("ours=")
    with pytest.raises(ConfigError, match="holds none"):
        parse_method(str(tmp_path))
