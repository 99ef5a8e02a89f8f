/* sys/select.h: the system's header, which others include. It would redefine FD_SETSIZE, so this one first saves the
 * program's definition for the sets of <winsock2.h>. */
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

/* Identifies it as the system's. */
#define CP_SYSTEM_FD_SETSIZE 1024
#undef FD_SETSIZE
#define FD_SETSIZE CP_SYSTEM_FD_SETSIZE

#endif
