"""Gates keep configurations off the front whose answers cannot be used, however fast they come.

To add one: a frozen dataclass here, whose fields are its options in the file, and a line below.
"""

from collections.abc import Mapping

from autotune.gates.equivalence import EquivalenceGate
from autotune.gates.fixtures import FixturesGate
from autotune.gates.json_schema import JsonSchemaGate
from autotune.gates.tool_calls import ToolCallsGate
from autotune.gates.tool_eval import ToolEvalGate
from autotune.protocols import Gate

GATES: Mapping[str, type[Gate]] = {
    "tool_calls": ToolCallsGate,
    "json_schema": JsonSchemaGate,
    "fixtures": FixturesGate,
    "equivalence": EquivalenceGate,
    "tool_eval": ToolEvalGate,
}
