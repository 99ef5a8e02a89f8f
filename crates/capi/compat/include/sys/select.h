/* sys/select.h: the system's. What the program has defined FD_SETSIZE as before it is kept for the sets of <winsock2.h>:
 * the system's header, which others include, would define it anew. */
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

/* Known by this name to be the system's. */
#define CP_SYSTEM_FD_SETSIZE 1024
#undef FD_SETSIZE
#define FD_SETSIZE CP_SYSTEM_FD_SETSIZE

#endif
