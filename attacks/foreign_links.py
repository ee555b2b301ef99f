"""Links that lead out of the folder."""

from common import Attack, Spoil, Target, main


def _link(name: str) -> Spoil:
    def spoil(target: Target) -> None:
        (target.outside / "kept").mkdir(exist_ok=True)
        path = target.folder / name
        path.rename(target.outside / "kept" / path.name)
        path.symlink_to(target.outside / "kept" / path.name)

    return spoil


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
    live=("weights", "a config", "a module's folder"),
    loading_is_harm=("weights",),
)

if __name__ == "__main__":
    main({"foreign_links": ATTACK})
