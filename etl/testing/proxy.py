"""A TCP proxy in front of a server, so that a test can cut, reset, freeze or slow down what goes through it.

It runs an event loop on a thread of its own; every method may be called from the test's thread and returns when done.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

T = TypeVar("T")
_BLOCK = 1 << 16
_RESET = struct.pack("ii", 1, 0)


class TcpProxy:
    """Forwards connections to ``host:port``; use it as a context manager.

    `delay_s` is added to every block in each direction.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._accepting = True
        self.delay_s = 0.0
        self.port = 0
        #: Connections accepted so far, refused ones included.
        self.connections = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """End every open connection in both directions (FIN), as a proxy or a failover does."""
        self._call(self._drop(reset=False))

    def reset(self) -> None:
        """Reset every open connection (RST), as a crashed peer does."""
        self._call(self._drop(reset=True))

    def refuse(self) -> None:
        """Reset what is open and whatever comes, until `accept`."""
        self._accepting = False
        self.reset()

    def accept(self) -> None:
        """Take connections again."""
        self._accepting = True

    def freeze(self) -> None:
        """Forward nothing more, and say nothing about it: the peers see a connection that is merely silent."""
        self._call(self._set_flowing(flowing=False))

    def thaw(self) -> None:
        """Go on forwarding, what was held back first."""
        self._call(self._set_flowing(flowing=True))

    # --- on the loop's thread -------------------------------------------------------------------------------------

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _open(self) -> None:
        self._flowing.set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._flowing.set()
        await self._drop(reset=True)
        pending = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        await asyncio.wait_for(asyncio.gather(*pending, return_exceptions=True), 10)

    async def _set_flowing(self, *, flowing: bool) -> None:
        (self._flowing.set if flowing else self._flowing.clear)()

    async def _drop(self, *, reset: bool) -> None:
        for writer in list(self._writers):
            if reset:
                _will_reset(writer)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if not self._accepting:
            _will_reset(writer)
            writer.close()
            return
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._target)
        except OSError:
            _will_reset(writer)
            writer.close()
            return
        self._writers |= {writer, server_writer}
        try:
            await asyncio.gather(self._pump(reader, server_writer), self._pump(server_reader, writer))
        finally:
            self._writers -= {writer, server_writer}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while block := await reader.read(_BLOCK):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                await self._flowing.wait()
                writer.write(block)
                await writer.drain()
        with contextlib.suppress(OSError):
            writer.close()
            await writer.wait_closed()


def _will_reset(writer: asyncio.StreamWriter) -> None:
    """Closing sends RST instead of FIN."""
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
