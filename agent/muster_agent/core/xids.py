"""What each XID means for a booking: name, class, effect, and the rule that ends its hold.

The driver's own recovery action outranks this table. Application XIDs never hold a GPU alone: they are faults of
tenants' programs.

Source: the driver's public error header (nverror.h, 595.45.04) for the codes; the effects are Muster's decisions,
weighed against what public health agents do with each code.
"""

from dataclasses import dataclass
from typing import Final, Literal

Effect = Literal["none", "holdNew", "unbookable", "bySeverity", "byValue", "byRemapState"]
"""What follows for bookings.

`holdNew`: running work goes on, none is booked. `unbookable`: running work is broken too. `bySeverity`: the severity
word of the kernel line decides. `byValue`: the recovery action it names decides. `byRemapState`: NVML's row remap
state decides.
"""

ClearsBy = Literal[
    "gpuResetVerified", "nodeRebootVerified", "recoveryActionNone", "probeOk", "operator",
    "remapNotPending", "deviceSeen", "nvmlOk", "monitoringOk",
]  # fmt: skip
"""The rule that ends a hold. Quiet time and a restart of the agent never do."""


@dataclass(frozen=True, slots=True)
class Xid:
    """One row of the table."""

    name: str
    kind: str
    effect: Effect = "none"
    clears_by: ClearsBy = "operator"  # read only where the effect holds


def xid(code: int) -> Xid:
    """Look a code up; one that nobody has listed is held until a probe says otherwise, never ignored."""
    return _XIDS.get(code, _UNLISTED)


def is_of_a_program(code: int) -> bool:
    """Tell whether programs cause it: it holds no GPU alone, but one that it follows from tenant to tenant."""
    return code in _FOLLOW_PROGRAMS or xid(code).kind == "application"


_FOLLOW_PROGRAMS: Final = frozenset({43, 45})  # what the driver says when it ends a program
_UNLISTED: Final = Xid("not listed", "unknown", "holdNew", "probeOk")

# One line a code, so that a change to one shows as one line.
# fmt: off
_XIDS: Final[dict[int, Xid]] = {
    1: Xid("fifo method error", "unused_or_display"),
    2: Xid("software method error", "unused_or_display"),
    3: Xid("unknown method", "unused_or_display"),
    4: Xid("channel busy", "unused_or_display"),
    5: Xid("run-out overflow", "unused_or_display"),
    6: Xid("push-buffer parse error", "unused_or_display"),
    7: Xid("page-table entry error", "unused_or_display"),
    8: Xid("channel idle timeout", "application"),
    9: Xid("graphics instance error", "unused_or_display"),
    10: Xid("single-step error", "unused_or_display"),
    11: Xid("corrupt command stream", "application"),
    12: Xid("graphics software method error", "unused_or_display"),
    13: Xid("graphics or shader exception", "application"),
    14: Xid("test/fake error", "info"),
    15: Xid("scan-line timeout", "unused_or_display"),
    16: Xid("vertical-blank callback timeout", "unused_or_display"),
    17: Xid("parameter error", "unused_or_display"),
    18: Xid("bus-master timeout", "unused_or_display"),
    19: Xid("missed display notifier", "unused_or_display"),
    20: Xid("legacy video method error", "unused_or_display"),
    21: Xid("legacy video engine error", "unused_or_display"),
    22: Xid("legacy video processor error", "unused_or_display"),
    23: Xid("error logging enabled", "unused_or_display"),
    24: Xid("semaphore timeout", "unused_or_display"),
    25: Xid("illegal command stream", "application"),
    26: Xid("frame-buffer state timeout", "unused_or_display"),
    27: Xid("video processor error", "unused_or_display"),
    28: Xid("video processor 2 error", "unused_or_display"),
    29: Xid("bitstream processor error", "unused_or_display"),
    30: Xid("bad address access", "unused_or_display"),
    31: Xid("page fault by a program", "application"),
    32: Xid("command fetch (PBDMA) error", "application"),
    33: Xid("security engine error", "unused_or_display"),
    34: Xid("video decoder front end", "unused_or_display"),
    35: Xid("video decoder back end", "unused_or_display"),
    36: Xid("video post processor", "unused_or_display"),
    37: Xid("context firmware: unknown method", "info"),
    38: Xid("context firmware watchdog", "info"),
    39: Xid("copy engine 0", "application"),
    40: Xid("copy engine 1", "application"),
    41: Xid("copy engine 2", "application"),
    42: Xid("image compositor engine", "unused_or_display"),
    43: Xid("channel reset after a tenant fault", "info"),
    44: Xid("fault during a context switch", "info"),
    45: Xid("pre-emptive channel removal", "info"),
    46: Xid("GPU timeout, engine stopped", "hardware_reset", "unbookable", "gpuResetVerified"),
    47: Xid("encoder 0", "unused_or_display"),
    48: Xid("uncorrectable ECC error", "memory", "unbookable", "gpuResetVerified"),
    49: Xid("reserved power level", "unused_or_display"),
    50: Xid("reserved power transition", "unused_or_display"),
    51: Xid("reserved stress test", "unused_or_display"),
    52: Xid("reserved temperature rise", "unused_or_display"),
    53: Xid("reserved temperature clocking", "unused_or_display"),
    54: Xid("auxiliary power missing", "hardware_rma", "unbookable"),
    55: Xid("reserved temperature read", "unused_or_display"),
    56: Xid("display channel exception", "unused_or_display"),
    57: Xid("frame-buffer link training", "unused_or_display"),
    58: Xid("frame-buffer memory", "unused_or_display"),
    59: Xid("power unit error", "unused_or_display"),
    60: Xid("security/video engine exception", "application"),
    61: Xid("power unit breakpoint", "hardware_reset", "unbookable", "gpuResetVerified"),
    62: Xid("power/management microcontroller halt", "hardware_reset", "unbookable", "gpuResetVerified"),
    63: Xid("row remap or page retirement recorded", "memory", "byRemapState"),
    64: Xid("row remap or page retirement failed", "memory", "unbookable"),
    65: Xid("encoder 1", "unused_or_display"),
    66: Xid("driver illegal register access", "info"),
    67: Xid("driver register verification", "info"),
    68: Xid("decoder 0 exception", "application"),
    69: Xid("graphics class error", "application"),
    70: Xid("copy engine 3", "application"),
    71: Xid("copy engine 4", "application"),
    72: Xid("copy engine 5", "application"),
    73: Xid("encoder 2", "unused_or_display"),
    74: Xid("NVLink error (NVLink 4 and older)", "nvlink", "unbookable", "gpuResetVerified"),
    75: Xid("copy engine 6", "application"),
    76: Xid("copy engine 7", "application"),
    77: Xid("copy engine 8", "application"),
    78: Xid("virtual GPU start error", "driver", "holdNew", "probeOk"),
    79: Xid("GPU fell off the bus", "hardware_rma", "unbookable", "nodeRebootVerified"),
    80: Xid("command stream checksum mismatch", "application"),
    81: Xid("display subsystem", "unused_or_display"),
    82: Xid("jpeg engine 0", "application"),
    83: Xid("decoder 1", "application"),
    84: Xid("decoder 2", "application"),
    85: Xid("copy engine 9", "application"),
    86: Xid("optical-flow engine 0", "application"),
    87: Xid("driver telemetry report", "unused_or_display"),
    88: Xid("decoder 3", "application"),
    89: Xid("decoder 4", "application"),
    90: Xid("level-2 cache error", "unused_or_display"),
    91: Xid("reserved", "unused_or_display"),
    92: Xid("high rate of corrected bit errors", "memory"),
    93: Xid("board flash (InfoROM) erase limit", "info"),
    94: Xid("contained memory error", "memory", "holdNew", "recoveryActionNone"),
    95: Xid("uncontained memory error", "memory", "unbookable", "gpuResetVerified"),
    96: Xid("decoder 5", "application"),
    97: Xid("decoder 6", "application"),
    98: Xid("decoder 7", "application"),
    99: Xid("jpeg engine 1", "application"),
    100: Xid("jpeg engine 2", "application"),
    101: Xid("jpeg engine 3", "application"),
    102: Xid("jpeg engine 4", "application"),
    103: Xid("jpeg engine 5", "application"),
    104: Xid("jpeg engine 6", "application"),
    105: Xid("jpeg engine 7", "application"),
    106: Xid("management-bus test message", "info"),
    107: Xid("management-bus test message (silent)", "info"),
    108: Xid("NVLink remote translation error", "nvlink"),
    109: Xid("context switch timeout", "hardware_reset", "unbookable", "recoveryActionNone"),
    110: Xid("security fault", "hardware_reset", "unbookable", "gpuResetVerified"),
    111: Xid("bundle error", "unused_or_display"),
    112: Xid("display supervisor", "unused_or_display"),
    113: Xid("display port training", "unused_or_display"),
    114: Xid("display underflow", "unused_or_display"),
    115: Xid("display core registers", "unused_or_display"),
    116: Xid("display window registers", "unused_or_display"),
    117: Xid("display cursor registers", "unused_or_display"),
    118: Xid("display head registers", "unused_or_display"),
    119: Xid("GSP firmware RPC timeout", "hardware_reset", "unbookable", "gpuResetVerified"),
    120: Xid("GSP firmware error", "hardware_reset", "unbookable", "gpuResetVerified"),
    121: Xid("C2C link corrected error", "nvlink"),
    122: Xid("power-unit flash read failed", "hardware_reset", "holdNew", "gpuResetVerified"),
    123: Xid("power-unit flash write failed", "hardware_reset", "holdNew", "gpuResetVerified"),
    124: Xid("power-unit flash erase failed", "hardware_reset", "holdNew", "gpuResetVerified"),
    125: Xid("board flash file system", "hardware_reset", "holdNew", "gpuResetVerified"),
    126: Xid("copy engine 10", "application"),
    127: Xid("copy engine 11", "application"),
    128: Xid("copy engine 12", "application"),
    129: Xid("copy engine 13", "application"),
    130: Xid("copy engine 14", "application"),
    131: Xid("copy engine 15", "application"),
    132: Xid("copy engine 16", "application"),
    133: Xid("copy engine 17", "application"),
    134: Xid("copy engine 18", "application"),
    135: Xid("copy engine 19", "application"),
    136: Xid("link training failed", "nvlink", "unbookable", "gpuResetVerified"),
    137: Xid("NVLink privilege error", "nvlink"),
    138: Xid("deep-learning engine", "unused_or_display"),
    139: Xid("optical-flow engine 1", "application"),
    140: Xid("ECC error the driver could not contain", "memory", "unbookable", "gpuResetVerified"),
    141: Xid("CUDA fast path error", "info"),
    142: Xid("encoder 3 error", "hardware_reset", "holdNew", "gpuResetVerified"),
    143: Xid("GPU failed to initialise", "hardware_reset", "unbookable", "gpuResetVerified"),
    144: Xid("NVLink 5 SAW unit error", "nvlink", "bySeverity", "gpuResetVerified"),
    145: Xid("NVLink 5 RLW unit error", "nvlink", "bySeverity", "gpuResetVerified"),
    146: Xid("NVLink 5 TLW unit error", "nvlink", "bySeverity", "gpuResetVerified"),
    147: Xid("NVLink 5 TREX unit error", "nvlink", "bySeverity", "gpuResetVerified"),
    148: Xid("NVLink 5 NVLPW control error", "nvlink", "bySeverity", "gpuResetVerified"),
    149: Xid("NVLink 5 NETIR (link events) error", "nvlink", "bySeverity", "gpuResetVerified"),
    150: Xid("NVLink 5 MSE firmware error", "nvlink", "bySeverity", "gpuResetVerified"),
    151: Xid("confidential-computing key rotation", "driver", "unbookable", "nodeRebootVerified"),
    152: Xid("deep-learning engine memory unit", "info"),
    153: Xid("deep-learning engine timeout", "info"),
    154: Xid("driver changed its recovery action", "control", "byValue"),
    155: Xid("NVLink error raised by software", "nvlink", "unbookable", "gpuResetVerified"),
    156: Xid("resource retirement recorded", "memory", "holdNew", "gpuResetVerified"),
    157: Xid("resource retirement failed", "memory", "holdNew"),
    158: Xid("fatal GPU timeout", "hardware_reset", "unbookable", "gpuResetVerified"),
    159: Xid("coherent-interface non-data error", "hardware_reset", "holdNew", "probeOk"),
    160: Xid("memory channel retired", "memory"),
    161: Xid("memory channel retirement failed", "memory", "holdNew"),
    162: Xid("power-smoothing hardware back in use", "info"),
    163: Xid("power-smoothing hardware switched off", "power"),
    164: Xid("power-smoothing hardware nearly worn out", "power"),
    165: Xid("power-smoothing hardware worn out", "power"),
    166: Xid("NVLink encryption error", "nvlink", "unbookable", "gpuResetVerified"),
    167: Xid("fatal PCIe timeout", "hardware_reset", "unbookable", "gpuResetVerified"),
    168: Xid("less GPU memory than sold", "memory", "holdNew"),
    169: Xid("SEC2 microcontroller halt", "hardware_reset", "unbookable", "gpuResetVerified"),
    170: Xid("NVLink secure mode event", "nvlink"),
    171: Xid("uncorrectable DRAM error (detail of 48)", "memory", "unbookable", "gpuResetVerified"),
    172: Xid("uncorrectable SRAM error (detail of 48)", "memory", "unbookable", "gpuResetVerified"),
    173: Xid("fatal C2C link failure", "nvlink", "unbookable", "nodeRebootVerified"),
    174: Xid("channel reset, process killed quietly", "info"),
    175: Xid("memory subsystem error", "memory", "unbookable", "gpuResetVerified"),
    176: Xid("correctable PCIe errors above a limit", "info"),
    185: Xid("memory sparing event", "info"),
    999: Xid("unknown XID (NVML's own placeholder)", "unknown", "holdNew", "probeOk"),
}
# fmt: on
