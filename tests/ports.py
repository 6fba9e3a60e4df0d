"""TCP ports for servers that are told their port before they start, and keep it when they start again."""

import random
import socket

# Below the range from which Linux takes the ports of outgoing connections and of servers that ask for any port (32768
# to 60999): a port of that range may be taken by anybody's connection before a server has started on it.
_PORTS = range(20_000, 32_768)
# A UDP socket at a port tells the other test processes that it is taken; the TCP port of the same number stays free.
_claims: list[socket.socket] = []


def claim_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that no other test is given before this process ends."""
    found: list[int] = []
    shuffled = iter(random.SystemRandom().sample(_PORTS, len(_PORTS)))
    while len(found) < count:
        port = next(shuffled)
        if is_free(port) and _claim(port):
            found.append(port)
    return found


def is_free(port: int) -> bool:
    """Whether a server can listen at this port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: closed connections may linger
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _claim(port: int) -> bool:
    """Claim the port for this process. False: another has it."""
    claim = socket.socket(type=socket.SOCK_DGRAM)
    try:
        claim.bind(("127.0.0.1", port))
    except OSError:
        claim.close()
        return False
    _claims.append(claim)
    return True
