"""An unpacked image in an image store."""

from swelab.records import write_json

DIGEST = f"sha256:{7:064}"


def unpack_root(store, variables=()):
    """Makes the folder and the configuration of an unpacked image. Returns the folder."""
    root = store.root(DIGEST)
    (root / "etc").mkdir(parents=True)
    (root / "testbed").mkdir()
    about = {"config": {"Env": list(variables)}, "digest": DIGEST, "bytes": 1}
    write_json(root.with_name(f"{root.name}.json"), about)
    return root
