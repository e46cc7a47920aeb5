"""What a power loss can leave behind: file system calls recorded, worst states built from them."""
