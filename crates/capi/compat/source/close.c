/*
 * completion_port_close.o: the calls that close descriptors, by the system's names. Linked with a program, it and
 * all libraries that it uses call these. See "Descriptors that are closed" in <completion_port.h>.
 *
 * What the C library does within itself it does not do by these: fclose, closedir and closefrom close unseen.
 */
#include <completion_port.h>

#define SEEN __attribute__((__visibility__("default")))

/* As <unistd.h> and <fcntl.h> have them, which declare some of them only if asked. */
SEEN int close(int descriptor);
SEEN int dup2(int from, int to);
SEEN int dup3(int from, int to, int flags);
SEEN int close_range(unsigned first, unsigned last, int flags);

int close(int descriptor) {
    return cp_close(descriptor);
}

int dup2(int from, int to) {
    return cp_dup2(from, to);
}

int dup3(int from, int to, int flags) {
    return cp_dup3(from, to, flags);
}

int close_range(unsigned first, unsigned last, int flags) {
    return cp_close_range(first, last, flags);
}
