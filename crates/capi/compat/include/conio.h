/* conio.h: keys that are pressed, without the end of a line. */
#ifndef CP_CONIO_H
#define CP_CONIO_H

#include <poll.h>
#include <stdio.h>
#include <termios.h>
#include <unistd.h>

#include <windows.h>

/* <winsock2.h> has its own struct with this tag. */
#ifndef CP_SYSTEM_POLLFD
#define CP_SYSTEM_POLLFD
typedef struct pollfd cp_system_pollfd;
#endif

/* Makes keys available immediately and hides them while this call checks. Returns whether the input
 * is a terminal. */
CP_INLINE int cp_keys_come_at_once(struct termios *before) {
    struct termios raw;
    if (tcgetattr(0, before) != 0)
        return 0;
    raw = *before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    return tcsetattr(0, TCSANOW, &raw) == 0;
}

/* Whether a key was pressed, or there is input that was redirected. */
CP_INLINE int _kbhit(void) {
    struct termios before;
    cp_system_pollfd input = {0, POLLIN, 0};
    int is_terminal = cp_keys_come_at_once(&before);
    int there = poll(&input, 1, 0) > 0;
    if (is_terminal)
        tcsetattr(0, TCSANOW, &before);
    return there;
}

/* The next key; EOF at the end of input that was redirected. */
CP_INLINE int _getch(void) {
    struct termios before;
    unsigned char key;
    int is_terminal = cp_keys_come_at_once(&before);
    int got = (int)read(0, &key, 1);
    if (is_terminal)
        tcsetattr(0, TCSANOW, &before);
    return got == 1 ? key : EOF;
}

#endif
