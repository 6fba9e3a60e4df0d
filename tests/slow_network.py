"""A network with a round trip: a TCP proxy that hands on what clients send only after a while.

Run: `python -m tests.slow_network DELAY_MS ADDRESS`; it prints the port on which it listens.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from tests.cluster import REPOSITORY

_CHUNK_BYTES = 1 << 18


async def _relay(client: asyncio.StreamReader, answer: asyncio.StreamWriter, address: str, delay_s: float) -> None:
    """Serve one connection. What is under way is only late: the bandwidth is that of the server."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
    clock = asyncio.get_running_loop()

    async def listen() -> None:
        while chunk := await client.read(_CHUNK_BYTES):
            late.put_nowait((clock.time() + delay_s, chunk))
        late.put_nowait((clock.time() + delay_s, b""))

    async def speak() -> None:
        while True:
            due, chunk = await late.get()
            await asyncio.sleep(max(0.0, due - clock.time()))
            if not chunk:
                break
            writer.write(chunk)
            await writer.drain()
        writer.close()

    async def bring() -> None:
        while chunk := await reader.read(_CHUNK_BYTES):
            answer.write(chunk)
            await answer.drain()
        answer.close()

    try:
        await asyncio.gather(listen(), speak(), bring())
    except OSError:
        writer.close()
        answer.close()


async def _serve(address: str, delay_s: float) -> None:
    relay = partial(_relay, address=address, delay_s=delay_s)
    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def slow_network(url: str, delay_ms: int) -> Iterator[str]:
    """The URL by which the server at `url` is that far away, for the length of the block."""
    command = [sys.executable, "-m", "tests.slow_network", str(delay_ms), url.removeprefix("http://")]
    proxy = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
    try:
        assert proxy.stdout is not None
        yield f"http://127.0.0.1:{proxy.stdout.readline().strip()}"
    finally:
        proxy.kill()
        proxy.communicate()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[2], int(sys.argv[1]) / 1000))
