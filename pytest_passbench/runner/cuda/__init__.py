"""What a sandboxed process does on a CUDA device. Nothing else of the runner calls the driver.

The rest of the runner uses ``block.CudaBlock`` in place of a block on the CPU, ``keeper.main`` for the process that
keeps inputs on the device, and ``machine_code`` for Triton kernels. The judge's side is ``judge/arms/cuda.py``.
"""
