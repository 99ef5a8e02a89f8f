/* sys/select.h: the system's header, which others include. It would redefine FD_SETSIZE, so this one first saves the
 * program's definition for the sets of <winsock2.h>. If there is none, FD_SETSIZE is no macro afterwards: a program that
 * defines it unless it is defined does so, as on Windows, whichever headers came first. */
#pragma GCC system_header

#ifdef CP_SYS_SELECT_H
#include_next <sys/select.h>
#else
#define CP_SYS_SELECT_H

#ifdef FD_SETSIZE
#define CP_FD_SETSIZE_IS_KEPT
#pragma push_macro("FD_SETSIZE")
#undef FD_SETSIZE
#endif

#include_next <sys/select.h>

#undef FD_SETSIZE
#ifdef CP_FD_SETSIZE_IS_KEPT
/* Identifies it as the system's. */
#define CP_SYSTEM_FD_SETSIZE 1024
#define FD_SETSIZE CP_SYSTEM_FD_SETSIZE
#else
enum { FD_SETSIZE = 1024 };
#endif

#endif
