"""What a MIG instance is called where its driver does not say."""

_EIGHTHS = 8  # a GPU's memory is split in eighths


def profile_name(slices: int, gpu_slices: int, memory_mib: int, whole_mib: int) -> str:
    """Name a profile as people do: `1g.10gb`, or `1c.3g.40gb` for a compute instance smaller than its GPU instance.

    Args:
        slices: Compute slices of the compute instance.
        gpu_slices: Compute slices of the GPU instance around it.
        memory_mib: Of the GPU instance.
        whole_mib: Of the whole GPU; 0 where nobody knows.

    Source: the names in NVIDIA's MIG guide: the nominal size is the share in eighths, rounded up, of the whole
    memory in GiB, rounded up; so 9,728 MiB of an 80 GiB GPU are "10gb".
    """
    whole_gib = -(-whole_mib // 1_024)
    eighths = -(-memory_mib * _EIGHTHS // whole_mib) if whole_mib else 0
    gib = (eighths * whole_gib * 2 + _EIGHTHS) // (2 * _EIGHTHS) if whole_mib else -(-memory_mib // 1_024)
    part = f"{slices}c." if slices < gpu_slices else ""
    return f"{part}{gpu_slices}g.{gib}gb"
