"""NVML, in a process of its own: a call into a sick driver may never come back.

`__main__` is that process: it scans (`scan`, `fabric`) and watches (`watch`), and knows pynvml only through `calls`.
`drivers.nvml_process` is the parent's side, and the two speak as `talk` says.
"""
