"""Payloads: what plugins read out of compiled delegates, their own or those of others."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import field, frozen

from etdev.errors import PluginError
from etdev.registry.plugin import Plugin
from etdev.schema.converters import frozen_tuple
from etdev.schema.device import Device


@frozen(eq=False)
class Payloads:
    """Asks plugins about payloads, in claim order, until one answers.

    Args:
        plugins: Who is asked; without any, nothing is known.
    """

    plugins: Sequence[Plugin] = field(default=(), converter=frozen_tuple)

    def device(self, backend_id: str, payload: bytes) -> Device | None:
        """The device that a delegate really uses; None if nobody knows."""
        for plugin in self.plugins:
            answer = plugin.ask("payload_device", backend_id=backend_id, payload=payload)
            if isinstance(answer, Device):
                return answer
        return None

    def data(self, backend_id: str, payload: bytes) -> tuple[str, ...]:
        """Keys of the named data that a delegate looks up; none if nobody knows.

        Raises:
            PluginError: A plugin answers with something else than keys.
        """
        for plugin in self.plugins:
            answer = plugin.ask("payload_data", backend_id=backend_id, payload=payload)
            if answer is None:
                continue
            if isinstance(answer, str) or not all(isinstance(key, str) for key in answer):
                raise PluginError(
                    plugin.name, f"payload_data returned {answer!r}", "return a list of keys"
                )
            return tuple(answer)
        return ()


NO_PLUGINS = Payloads()
