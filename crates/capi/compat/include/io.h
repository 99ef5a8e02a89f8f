/*
 * io.h: descriptors, with the function names of the reference's C library.
 *
 * What differs: a descriptor gets a handle from _get_osfhandle or _open_osfhandle. The handle keeps the file open until
 * _close or _dup2 closes the descriptor, or CloseHandle closes the handle. close(2) and fclose do not close it. There
 * is no text mode. A socket's handle is its number.
 */
#ifndef CP_IO_H
#define CP_IO_H

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <windows.h>

#define _O_RDONLY O_RDONLY
#define _O_WRONLY O_WRONLY
#define _O_RDWR O_RDWR
#define _O_APPEND O_APPEND
#define _O_CREAT O_CREAT
#define _O_EXCL O_EXCL
#define _O_TRUNC O_TRUNC
/* O_CLOEXEC, which strict C hides. */
#define _O_NOINHERIT 02000000
/* Files have no text mode, and hints have no effect. */
#define _O_BINARY 0
#define _O_TEXT 0
#define _O_RANDOM 0
#define _O_SEQUENTIAL 0
#define _O_SHORT_LIVED 0
#define O_BINARY 0

#define _S_IREAD 0400
#define _S_IWRITE 0200

#define _access access
#define _dup dup
#define _isatty isatty
#define _read read
#define _unlink unlink
#define _write write

#ifndef __cplusplus
extern int fileno(FILE *);
#endif
#define _fileno fileno

CP_INLINE int cp_descriptor_open(const cp_name *name, int flags, int mode) {
    int fd = open(name->text, flags, mode & _S_IWRITE ? 0666 : 0444);
    if (fd < 0 && errno == EISDIR)
        errno = EACCES;
    return fd;
}

/* Reports a failure of `cp_name_of` in `errno`, too. */
CP_INLINE int cp_descriptor_refused(void) {
    errno = GetLastError() == ERROR_FILENAME_EXCED_RANGE ? ENAMETOOLONG : ENOENT;
    return -1;
}

/* With _O_CREAT the third argument decides whether the file is writable: _S_IWRITE. */
CP_INLINE int _open(const char *filename, int oflag, ...) {
    int mode = 0;
    cp_name name;
    if (oflag & _O_CREAT) {
        va_list arguments;
        va_start(arguments, oflag);
        mode = va_arg(arguments, int);
        va_end(arguments);
    }
    if (!filename) {
        errno = EINVAL;
        return -1;
    }
    return cp_name_of(&name, filename) ? cp_descriptor_open(&name, oflag, mode) : cp_descriptor_refused();
}

CP_INLINE int _wopen(const wchar_t *filename, int oflag, ...) {
    int mode = 0;
    cp_name name;
    if (oflag & _O_CREAT) {
        va_list arguments;
        va_start(arguments, oflag);
        mode = va_arg(arguments, int);
        va_end(arguments);
    }
    if (!filename) {
        errno = EINVAL;
        return -1;
    }
    return cp_name_of_wide(&name, filename) ? cp_descriptor_open(&name, oflag, mode) : cp_descriptor_refused();
}

CP_INLINE int _close(int fd) {
    cp_descriptor_ends(fd);
    return cp_close(fd);
}

/* Returns 0 or -1. */
CP_INLINE int _dup2(int fd1, int fd2) {
    if (fd1 != fd2 && fcntl(fd1, F_GETFD) != -1)
        cp_descriptor_ends(fd2);
    return cp_dup2(fd1, fd2) < 0 ? -1 : 0;
}

CP_INLINE __int64 _lseeki64(int fd, __int64 offset, int origin) {
    return lseek(fd, (off_t)offset, origin);
}

CP_INLINE long _lseek(int fd, long offset, int origin) {
    return (long)lseek(fd, (off_t)offset, origin);
}

CP_INLINE __int64 _telli64(int fd) {
    return lseek(fd, 0, SEEK_CUR);
}

/* The standard streams have the handles of GetStdHandle. */
CP_INLINE intptr_t _get_osfhandle(int fd) {
    HANDLE handle;
    if (fd >= 0 && fd <= 2 && fcntl(fd, F_GETFD) != -1)
        return (intptr_t)GetStdHandle(STD_INPUT_HANDLE - (DWORD)fd);
    handle = cp_descriptor_handle(fd);
    if (handle == INVALID_HANDLE_VALUE)
        errno = GetLastError() == ERROR_TOO_MANY_OPEN_FILES ? EMFILE : EBADF;
    return (intptr_t)handle;
}

/* The handle belongs to the descriptor: _close closes both. `flags` are ignored: the handle decides. */
CP_INLINE int _open_osfhandle(intptr_t osfhandle, int flags) {
    int fd;
    (void)flags;
    if (cp_is_standard_stream((HANDLE)osfhandle))
        return cp_standard_stream((HANDLE)osfhandle);
    fd = cp_descriptor_for((HANDLE)osfhandle);
    if (fd < 0)
        errno = GetLastError() == ERROR_TOO_MANY_OPEN_FILES ? EMFILE : EBADF;
    return fd;
}

#endif
