"""Removes leftovers of killed runs from an engine: objects with our label whose owner process has ended."""

import logging

from swelab.sandbox import container_owner
from swelab.sandbox.docker_engine import DockerEngine

PREPARED = "swelab.prepared"
_log = logging.getLogger(__name__)


def reap(engine: DockerEngine) -> list[str]:
    """Removes containers, and volumes without a container, whose owner process has ended.

    Returns the ids of the removed containers. Raises EngineDown, SandboxLost.
    """
    with engine.request("listing containers"):
        found = engine.api.containers(all=True, filters={"label": container_owner.OWNER})
    orphans = [
        each["Id"] for each in found if container_owner.is_gone(each["Labels"].get(container_owner.OWNER, ""))
    ]
    for container in orphans:
        engine.remove(container)
    for volume, marks in engine.volumes(container_owner.OWNER).items():
        if container_owner.is_gone(marks.get(container_owner.OWNER, "")):
            engine.remove_volumes(volume)
    if orphans:
        _log.info("removed %d containers whose owners had ended", len(orphans))
    return orphans


def remove_prepared(engine: DockerEngine) -> list[str]:
    """Removes prepared images that no container uses, and returns their ids.

    Images are prepared again when they are needed.
    """
    removed = []
    with engine.request("listing images"):
        found = engine.api.images(filters={"label": PREPARED})
        used = {each["ImageID"] for each in engine.api.containers(all=True)}
    for image in found:
        if image["Id"] not in used:
            with engine.request("removing an image"):
                engine.api.remove_image(image["Id"], force=True)
            removed.append(image["Id"])
    return removed
