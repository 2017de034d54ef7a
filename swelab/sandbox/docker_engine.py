"""Sends requests to a container engine (Docker's API over its socket). Raises the errors of `protocol`."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import docker
import requests
import urllib3
from docker.errors import APIError, DockerException, ImageNotFound, NotFound

from swelab.sandbox.protocol import BackendMissing, EngineDown, ImageMissing, SandboxLost

API_VERSION = "1.40"  # the API of Docker 19.03
_ANSWER_SECONDS = 120.0
_END_SECONDS = 30.0
_CONNECTIONS = 64
# When the docker client reads a response piece by piece, it raises errors of the HTTP libraries below it.
_NO_ANSWER = (DockerException, requests.RequestException, urllib3.exceptions.HTTPError, OSError)


class DockerEngine:
    """The container engine at $DOCKER_HOST, by default on this machine.

    Raises BackendMissing if there is none.
    """

    def __init__(self) -> None:
        self.address = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
        try:
            self.api = docker.APIClient(
                **docker.utils.kwargs_from_env(),
                version=API_VERSION,
                timeout=_ANSWER_SECONDS,
                max_pool_size=_CONNECTIONS,
            )
            self.api.ping()
        except _NO_ANSWER as error:
            what = f"no container engine answers at {self.address}: {_message(error)}"
            raise BackendMissing(what) from None

    @contextmanager
    def request(self, what: str) -> Iterator[None]:
        """Converts errors of the docker client in this `with` block to our own errors.

        Raises EngineDown, ImageMissing, and OSError if the disk is full. Raises SandboxLost if the engine
        refuses the request, or has no such container.
        """
        try:
            yield
        except ImageNotFound as error:
            raise ImageMissing(f"{what}: {_message(error)}") from None
        except NotFound as error:
            raise SandboxLost(f"{what}: the container is gone: {_message(error)}") from None
        except APIError as error:
            said = _message(error)
            if "no space left on device" in said.lower():
                raise OSError(28, f"{what}: the engine's disk is full: {said}") from None
            raise SandboxLost(f"{what}: the engine refused: {said}") from None
        except _NO_ANSWER as error:
            if isinstance(error, OSError) and error.errno == 28:
                raise
            raise EngineDown(
                f"{what}: the engine at {self.address} does not answer: {_message(error)}"
            ) from None

    def answers(self) -> bool:
        """Returns whether the engine responds now."""
        try:
            return bool(self.api.ping())
        except _NO_ANSWER:
            return False

    def create(self, image: str, settings: dict[str, Any], host: dict[str, Any]) -> str:
        """Creates a container without starting it, and returns its id.

        settings, host: fields of the engine's API.
        """
        with self.request("making a container"):
            body = {"Image": image, **settings, "HostConfig": host}
            return str(self._post("/containers/create", body)["Id"])

    def start(self, container: str) -> None:
        """Starts a container that `create` created."""
        with self.request("starting a container"):
            self.api.start(container)

    def update(self, container: str, memory: int, processes: int) -> None:
        """Changes the limits of a running container."""
        with self.request("changing a container's limits"):
            body = {"Memory": memory, "MemorySwap": memory, "PidsLimit": processes}
            self._post(f"/containers/{container}/update", body)

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        url = f"{self.api.base_url}/v{API_VERSION}{path}"
        answer = self.api.post(url, json=body, timeout=_ANSWER_SECONDS)
        return self.api._result(answer, json=True)

    def attach(self, container: str) -> "Wire":
        """Connects to a container's stdin and output. Must be called before `start`."""
        with self.request("attaching to a container"):
            streams = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            return Wire(self.api.attach_socket(container, params=streams))

    def remove(self, container: str) -> bool:
        """Kills and removes a container and its volumes.

        Returns False if the container was already removed, or another removal was in progress.
        """
        with self.request("removing a container"):
            ends, alone = time.monotonic() + _END_SECONDS, True
            while True:
                try:
                    self.api.remove_container(container, v=True, force=True)
                    return alone
                except NotFound:
                    return False
                except APIError as error:
                    if error.status_code != 409 or time.monotonic() > ends:
                        raise
                    alone = False  # another removal is in progress
                    time.sleep(0.02)

    def remove_volumes(self, *names: str) -> None:
        """Removes these volumes, except volumes that a container uses."""
        for name in names:
            with self.request("removing a volume"):
                try:
                    self.api.remove_volume(name)
                except NotFound:
                    continue
                except APIError as error:
                    if error.status_code != 409:
                        raise

    def volumes(self, label: str) -> dict[str, dict[str, str]]:
        """Maps each volume that has the label (`name` or `name=value`) to all labels of the volume."""
        with self.request("listing volumes"):
            found = self.api.volumes(filters={"label": label})["Volumes"] or []
        return {volume["Name"]: volume["Labels"] or {} for volume in found}


class Wire:
    """A raw connection to the streams of a container."""

    def __init__(self, attached: Any) -> None:
        self._attached = attached  # this object closes the socket when it is deleted
        self.socket: socket.socket = getattr(attached, "_sock", attached)
        self.socket.settimeout(None)
        self._closing = threading.Lock()

    def close(self) -> None:
        """Closes the connection in both directions. A reader then gets the end of the stream."""
        with self._closing:
            for end in (lambda: self.socket.shutdown(socket.SHUT_RDWR), self._attached.close):
                try:
                    end()
                except OSError:
                    continue


def _message(error: BaseException) -> str:
    """Returns the first line of an error message from the engine or the connection."""
    text = getattr(error, "explanation", None) or str(error)
    lines = str(text).strip().splitlines() or [type(error).__name__]
    return lines[0][:300]
