"""What touches the host: GPUs, kernel log, host facts, bind drivers. Thin; decisions are in `core`."""
