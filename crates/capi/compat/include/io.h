/* io.h: the system's calls on descriptors, by the names of the reference's C library. */
#ifndef CP_IO_H
#define CP_IO_H

#include <unistd.h>

#include <windows.h>

#define _access access
#define _close close
#define _dup dup
#define _dup2 dup2
#define _isatty isatty
#define _read read
#define _unlink unlink
#define _write write

#endif
