"""Power loss: file system calls are recorded, and the worst possible disk states are built."""
