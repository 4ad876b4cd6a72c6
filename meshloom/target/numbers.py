"""Numbers that were fitted or measured on machines: rates, thresholds, blocks; one object for each class of devices.

Code asks its target for them (``target.numbers``, ``target.cpu``, ``target.gpu``). What each number is, its unit and
where it was measured stand in the files of ``devices``.
"""

from __future__ import annotations

from collections.abc import Mapping

from meshloom.records import dataclass
from meshloom.target.rates import Rates

Named = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class OrderNumbers:
    """What a cache holds of what blocks that run one after the other load again."""

    held_rows: float
    held_lines: float


@dataclass(frozen=True)
class FusionNumbers:
    """When loops of a program become one."""

    worth: float
    worth_again: float
    most_operations: int
    most_weighed: int
    few: int
    in_vectors: float
    weights: Mapping[str, float]


@dataclass(frozen=True)
class SolverNumbers:
    """How sparse systems are stored and iterated on."""

    chunk: int
    window: int
    most_added: float
    stored_maps: int
    stored_cells: int
    coarsest: int
    vectors: int
    noted: int
    by_matrix: int


@dataclass(frozen=True)
class ThreadNumbers:
    """Threads of a CPU: how fast all together are, and when they pay."""

    bytes_per_second: float
    small_elements: int
    small_flops: int
    many_blocks: int
    least_block: int


@dataclass(frozen=True)
class ChunkNumbers:
    """Chunks of targets in fused loops."""

    most_targets: int
    least_targets: int
    many: int
    fewest: int
    enough: float
    most_again: float


@dataclass(frozen=True)
class CpuLineNumbers:
    """Lines side by side."""

    buffer: int
    side_by_side: tuple[int, ...]
    most_contiguous: int


@dataclass(frozen=True)
class CompilingNumbers:
    """When a text is long."""

    many_statements: int


@dataclass(frozen=True)
class PlanNumbers:
    """When plans are kept on disk."""

    smallest_stored: int


@dataclass(frozen=True)
class ArrayNumbers:
    """How much NumPy works on at a time, and what is left to compiled code."""

    chunk: int
    pieces: int
    many_cells: int


@dataclass(frozen=True)
class MessageNumbers:
    """What messages between ranks take, and to do something meanwhile."""

    latency: float
    per_byte: float
    per_cut: float


@dataclass(frozen=True)
class SharedNumbers:
    """Shared memory that the automatic choice allows."""

    most: int


@dataclass(frozen=True)
class FusedNumbers:
    """What a fused loop asks of a GPU."""

    block: int
    most_registers: int
    full_speed_registers: float
    other_registers: float
    registers_per_value: float


@dataclass(frozen=True)
class PointNumbers:
    """Points of a grid that a thread takes together."""

    most_loaded: int
    most_to_reduce: int
    most_in_a_row: int
    most_stored: int
    long: int
    most_nodes: int
    most_nodes_to_reduce: int
    unrolled: tuple[int, ...]
    long_lines: int


@dataclass(frozen=True)
class VectorNumbers:
    """Elements that a thread takes together."""

    many: int
    most_values: int
    least_loaded: int
    least_reduced: int
    most_vectors: int


@dataclass(frozen=True)
class NeighbourNumbers:
    """Tables of neighbours."""

    most_lost: float


@dataclass(frozen=True)
class StripNumbers:
    """Strips of elements that a thread does one after the other."""

    longest: int
    window: int
    tried: int
    least_hits: float


@dataclass(frozen=True)
class GpuLineNumbers:
    """How lines are cut up."""

    line_threads: int
    chunk_threads: int
    fewest_segments: int
    points: int
    least_points: int
    several_points: int
    several_lines: int
    most_shared: int
    operands: tuple[int, ...]
    points_of_operands: tuple[int, ...]
    share_of_many: int
    tile: int
    light_tile: int
    light_registers: int
    light: int
    registers: Mapping[str, int]
    cache: int
    prefetched_blocks: int
    prefetched_near: int
    prefetched_points: int
    few_blocks: int
    far_apart: int
    most_special: int
    narrow: Mapping[str, int]
    widest: int
    most_overlap: int
    strided: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class SystemNumbers:
    """How lines of systems with coefficients of their own are cut up."""

    line_threads: int
    most_numbers: int
    few_points: int
    contiguous_points: tuple[int, ...]
    strided_points: tuple[int, ...]
    least_points: int
    least_row: int
    swept_threads: int
    unrolled_segments: int


@dataclass(frozen=True)
class KernelNumbers:
    """When one more block on a multiprocessor is worth some registers."""

    enough_blocks: int
    few_spills: int
    few_threads: int


@dataclass(frozen=True)
class GraphNumbers:
    """Branches of a program."""

    large: float
    most_branches: int


@dataclass(frozen=True)
class Numbers:
    """Of one class of devices; the files say what each number is, with its unit."""

    device: str
    measured_on: str
    speed: float  # of the device that was measured, in any unit: rates of others go by theirs
    rates: Rates
    order: OrderNumbers
    strategies: Named
    fusion: FusionNumbers
    solvers: SolverNumbers

    def block(self, strategy: str) -> int:
        """The usual block of a strategy; those that are not listed have what any has."""
        return int(self.strategies.get(strategy, {}).get("block", self.strategies["any"]["block"]))


@dataclass(frozen=True)
class CpuNumbers(Numbers):
    threads: ThreadNumbers
    chunks: ChunkNumbers
    lines: CpuLineNumbers
    compiling: CompilingNumbers
    plans: PlanNumbers
    arrays: ArrayNumbers
    messages: MessageNumbers


@dataclass(frozen=True)
class GpuNumbers(Numbers):
    shared: SharedNumbers
    layouts: Named
    fused: FusedNumbers
    points: PointNumbers
    vectors: VectorNumbers
    neighbours: NeighbourNumbers
    strips: StripNumbers
    lines: GpuLineNumbers
    systems: SystemNumbers
    kernels: KernelNumbers
    graph: GraphNumbers

    def layout_times(self, strategy: str, row_bytes: int, in_parts: bool) -> Mapping[str, float]:
        """Times over the better layout, of each, for rows of so many bytes; strategies that are not listed have what
        any has. ``in_parts``: long rows of which a thread takes a part."""
        times, rows = self.layouts.get(strategy, self.layouts["any"]), self.layouts["long_rows"]
        if row_bytes <= rows["bytes"]:
            return times
        if in_parts:
            return self.layouts["parts_of_rows"]
        return {layout: took * rows.get(layout, 1.0) for layout, took in times.items()}
