"""Links that lead out of the folder."""

from common import Attack, Change, Target


def _link(name: str) -> Change:
    def change(target: Target) -> None:
        (target.outside / "kept").mkdir(exist_ok=True)
        path = target.folder / name
        path.rename(target.outside / "kept" / path.name)
        path.symlink_to(target.outside / "kept" / path.name)

    return change


def _chain(target: Target) -> None:
    (target.folder / "inner").symlink_to(target.outside)
    (target.folder / "config.json").unlink()
    (target.folder / "config.json").symlink_to("inner/config.json")


ATTACK = Attack(
    {
        "weights": _link("model.safetensors"),
        "a config": _link("config.json"),
        "the model card": _link("README.md"),
        "a module's folder": _link("1_SelectivePooling"),
        "a link through a link": _chain,
    },
    works_on_host=("weights", "a config", "a module's folder"),
    loading_is_harm=("weights",),
)
