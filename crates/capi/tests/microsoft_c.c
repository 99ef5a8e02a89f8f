/* Extensions that the reference's compilers accept as C, with the flags from pkg-config and CMake. */
#include <crtdbg.h>
#include <sdkddkver.h>
#include <winsock2.h>
#include <windows.h>
#include <io.h>

#include <pthread.h>

#include "check.h"

#pragma comment(lib, "ws2_32.lib")

typedef struct HEADER {
    WORD kind;
    WORD size;
} HEADER;

#ifdef __cplusplus
struct PACKET : HEADER, OVERLAPPED {
    BYTE bytes[8];
};
#else
/* A struct without a name: its members are those of the outer one. */
typedef struct PACKET {
    HEADER;
    OVERLAPPED;
    BYTE bytes[8];
} PACKET;
#endif

static __declspec(thread) int other;
__declspec(thread) static int own;
__declspec(align(64)) static char aligned[64];

__declspec(noinline) static unsigned __int64 __cdecl wide(__int32 number)
{
    return (unsigned __int64)number << 32;
}

static __forceinline int __stdcall doubled(int number)
{
    return 2 * number;
}

static DWORD WINAPI has_its_own(LPVOID unused)
{
    UNREFERENCED_PARAMETER(unused);
    own++;
    CHECK_IS(other, 0);
    return (DWORD)own;
}

/* ---- descriptors --------------------------------------------------------------------------------------- */

#define CHECK_ERRNO(call, code) (errno = 0, CHECK_IS((call), -1), CHECK_IS(errno, (code)))

static char name[64];

static void a_descriptor_is_opened_and_moved(void)
{
    WCHAR wide_name[64];
    char bytes[8], long_name[5000];
    int fd = _open(name, _O_CREAT | _O_EXCL | _O_RDWR | _O_BINARY | _O_NOINHERIT, _S_IREAD | _S_IWRITE), other;
    CHECK(fd > 2);
    CHECK_IS(fcntl(fd, F_GETFD), FD_CLOEXEC);
    CHECK_IS(_write(fd, "0123456789", 10), 10);
    CHECK_IS(_lseeki64(fd, -3, SEEK_END), 7);
    CHECK_IS(_read(fd, bytes, 8), 3);
    CHECK_IS(_lseek(fd, 2, SEEK_SET), 2);
    CHECK_IS(_telli64(fd), 2);
    CHECK_IS(_lseeki64(fd, 0x100000000LL, SEEK_SET), 0x100000000LL);
    CHECK_ERRNO(_lseeki64(fd, -1, SEEK_SET), EINVAL);
    CHECK_ERRNO(_open(name, _O_CREAT | _O_EXCL | _O_RDWR, _S_IWRITE), EEXIST);
    CHECK_IS(_close(fd), 0);
    CHECK_ERRNO(_close(fd), EBADF);
    CHECK_ERRNO(_close(-1), EBADF);
    CHECK_ERRNO(_lseeki64(fd, 0, SEEK_SET), EBADF);
    CHECK(MultiByteToWideChar(CP_UTF8, 0, name, -1, wide_name, 64) > 0);
    fd = _wopen(wide_name, _O_RDONLY);
    CHECK(fd > 2 && fcntl(fd, F_GETFD) == 0);
    other = _dup(fd);
    CHECK(other > 2 && other != fd);
    CHECK_IS(_dup2(fd, other), 0); /* not the number */
    CHECK_ERRNO(_dup2(-1, other), EBADF);
    CHECK(_close(fd) == 0 && _close(other) == 0);
    CHECK_ERRNO(_open("/tmp\\none\\such", _O_RDONLY), ENOENT);
    CHECK_ERRNO(_open("\\\\server\\share", _O_RDONLY), ENOENT);
    CHECK_ERRNO(_open(NULL, _O_RDONLY), EINVAL);
    CHECK_ERRNO(_open(".", _O_RDWR), EACCES);
    CHECK_ERRNO(_wopen(NULL, _O_RDONLY), EINVAL);
    memset(long_name, 'a', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    CHECK_ERRNO(_open(long_name, _O_RDONLY), ENAMETOOLONG);
    CHECK(DeleteFileA(name));
    fd = _open(name, _O_CREAT | _O_WRONLY, _S_IREAD);
    CHECK(fd > 2 && _close(fd) == 0);
    CHECK_IS(GetFileAttributesA(name), FILE_ATTRIBUTE_READONLY);
    CHECK(DeleteFileA(name));
}

static void a_descriptor_has_a_handle(void)
{
    HANDLE handle, other;
    DWORD done = 0;
    char bytes[8];
    int pipes[2], fd = _open(name, _O_CREAT | _O_RDWR, _S_IWRITE), again;
    CHECK(fd > 2);
    handle = (HANDLE)_get_osfhandle(fd);
    CHECK(handle != INVALID_HANDLE_VALUE);
    CHECK((HANDLE)_get_osfhandle(fd) == handle);
    CHECK_IS(GetFileType(handle), FILE_TYPE_DISK);
    /* Both share the file position. */
    CHECK_IS(_write(fd, "abc", 3), 3);
    CHECK(WriteFile(handle, "def", 3, &done, NULL));
    CHECK_IS(_lseeki64(fd, 0, SEEK_CUR), 6);
    CHECK(SetFilePointer(handle, 1, NULL, FILE_BEGIN) == 1 && _read(fd, bytes, 8) == 5 && memcmp(bytes, "bcdef", 5) == 0);
    CHECK_IS(_close(fd), 0);
    CHECK_FALSE(WriteFile(handle, "x", 1, &done, NULL), ERROR_INVALID_HANDLE);
    CHECK_FALSE(CloseHandle(handle), ERROR_INVALID_HANDLE);
    CHECK_ERRNO(_get_osfhandle(fd), EBADF);
    CHECK_ERRNO(_get_osfhandle(-1), EBADF);
    CHECK_ERRNO(_get_osfhandle(1000000), EBADF);
    /* dup2(2), which the library does not see, makes the number name another file. A handle may also be closed alone.
     * */
    fd = _open(name, _O_RDONLY);
    handle = (HANDLE)_get_osfhandle(fd);
    CHECK_FALSE(WriteFile(handle, "x", 1, &done, NULL), ERROR_ACCESS_DENIED);
    CHECK_IS(pipe(pipes), 0);
    CHECK_IS(dup2(pipes[1], fd), fd);
    other = (HANDLE)_get_osfhandle(fd);
    CHECK(other != INVALID_HANDLE_VALUE && other != handle);
    CHECK_IS(GetFileType(other), FILE_TYPE_PIPE);
    CHECK_FALSE(CloseHandle(handle), ERROR_INVALID_HANDLE);
    CHECK(CloseHandle(other));
    handle = (HANDLE)_get_osfhandle(fd);
    CHECK(handle != INVALID_HANDLE_VALUE && handle != other && WriteFile(handle, "p", 1, &done, NULL));
    /* Nothing keeps the pipe open after _close. */
    CHECK(_close(pipes[1]) == 0 && _close(fd) == 0);
    CHECK_IS(_read(pipes[0], bytes, 8), 1);
    CHECK_IS(_read(pipes[0], bytes, 8), 0);
    CHECK_IS(_close(pipes[0]), 0);
    /* A descriptor that _dup2 closes loses its handle. */
    fd = _open(name, _O_RDONLY);
    again = _open(name, _O_RDONLY);
    handle = (HANDLE)_get_osfhandle(again);
    CHECK_IS(_dup2(fd, again), 0);
    CHECK_FALSE(CloseHandle(handle), ERROR_INVALID_HANDLE);
    CHECK(_close(fd) == 0 && _close(again) == 0);
    CHECK(DeleteFileA(name));
}

static void a_handle_has_a_descriptor(void)
{
    HANDLE handle = CreateFileA(name, GENERIC_READ | GENERIC_WRITE, 0, NULL, CREATE_NEW, 0, NULL), event;
    SOCKET one, other;
    DWORD done;
    FILE *stream;
    char byte;
    int fd = _open_osfhandle((intptr_t)handle, _O_RDWR);
    CHECK(fd > 2 && (HANDLE)_get_osfhandle(fd) == handle);
    CHECK_IS(_write(fd, "abc", 3), 3);
    CHECK(WriteFile(handle, "d", 1, &done, NULL));
    CHECK_IS(_lseeki64(fd, 0, SEEK_END), 4);
    CHECK_IS(_close(fd), 0);
    CHECK_FALSE(CloseHandle(handle), ERROR_INVALID_HANDLE);
    /* The file was not shared, and is closed. */
    handle = CreateFileA(name, GENERIC_READ, 0, NULL, OPEN_EXISTING, 0, NULL);
    CHECK(handle != INVALID_HANDLE_VALUE);
    CHECK_ERRNO(_open_osfhandle((intptr_t)INVALID_HANDLE_VALUE, 0), EBADF);
    CHECK_ERRNO(_open_osfhandle(0, 0), EBADF);
    event = CreateEventA(NULL, TRUE, FALSE, NULL);
    CHECK_ERRNO(_open_osfhandle((intptr_t)event, 0), EBADF);
    CHECK(CloseHandle(event) && CloseHandle(handle));
    CHECK_ERRNO(_open_osfhandle((intptr_t)handle, 0), EBADF);
    /* Standard streams and sockets. */
    CHECK((HANDLE)_get_osfhandle(1) == GetStdHandle(STD_OUTPUT_HANDLE));
    CHECK((HANDLE)_get_osfhandle(_fileno(stderr)) == GetStdHandle(STD_ERROR_HANDLE));
    CHECK_IS(_open_osfhandle((intptr_t)GetStdHandle(STD_ERROR_HANDLE), 0), 2);
    tcp_pair(&one, &other);
    CHECK_IS(_get_osfhandle((int)one), one);
    CHECK_IS(_open_osfhandle((intptr_t)one, 0), one);
    CHECK_IS(_close((int)one), 0);
    CHECK_IS(recv(other, &byte, 1, 0), 0);
    CHECK_IS(closesocket(other), 0);
    stream = fopen(name, "r");
    CHECK(stream && GetFileType((HANDLE)_get_osfhandle(_fileno(stream))) == FILE_TYPE_DISK);
    CHECK_IS(fclose(stream), 0);
    CHECK(DeleteFileA(name));
}

static void *asks_for_the_handle(void *fd)
{
    return (void *)_get_osfhandle(*(const int *)fd);
}

static void threads_get_the_same_handle(void)
{
    pthread_t threads[4];
    void *handle, *first = NULL;
    int at, fd = _open(name, _O_CREAT | _O_RDWR, _S_IWRITE);
    for (at = 0; at < 4; at++)
        CHECK_IS(pthread_create(&threads[at], NULL, asks_for_the_handle, &fd), 0);
    for (at = 0; at < 4; at++) {
        CHECK_IS(pthread_join(threads[at], &handle), 0);
        first = at == 0 ? handle : first;
        CHECK(handle == first && handle != INVALID_HANDLE_VALUE);
    }
    CHECK(_close(fd) == 0 && DeleteFileA(name));
}

static void descriptors_are_those_of_the_reference(void)
{
    snprintf(name, sizeof name, "/tmp/cp-descriptors-XXXXXX");
    CHECK(mkdtemp(name) != NULL && RemoveDirectoryA(name));
    a_descriptor_is_opened_and_moved();
    a_descriptor_has_a_handle();
    a_handle_has_a_descriptor();
    threads_get_the_same_handle();
}

int main(void)
{
    PACKET packet;
    HANDLE port, thread;
    DWORD bytes, code;
    ULONG_PTR key;
    LPOVERLAPPED overlapped;
    volatile char flag = 1;
    static CRITICAL_SECTION zeros = {0, 0, 0, 0, 0, 0};
    start();
    memset(&packet, 0, sizeof packet);
    packet.size = 8;
    packet.Offset = 7;
    port = new_port(0);
    CHECK(PostQueuedCompletionStatus(port, 1, 2, (LPOVERLAPPED)(void *)((char *)&packet + 8)));
    CHECK(GetQueuedCompletionStatus(port, &bytes, &key, &overlapped, INFINITE));
    CHECK_IS(overlapped->Offset, 7);
    CHECK_IS(wide(3), 0x300000000);
    CHECK_IS(doubled(4), 8);
    CHECK_IS((ULONG_PTR)aligned % 64, 0);
    own = other = 5;
    thread = CreateThread(NULL, 0, has_its_own, NULL, 0, NULL);
    CHECK_IS(WaitForSingleObject(thread, INFINITE), WAIT_OBJECT_0);
    CHECK(GetExitCodeThread(thread, &code));
    CHECK_IS(code, 1);
    CHECK_IS(own, 5);
#ifndef __cplusplus
    CHECK_IS(max(min(3, 4), 2), 3);
#endif
    CHECK_IS(RTL_NUMBER_OF(packet.bytes), 8);
    CHECK_IS(_countof(packet.bytes), 8);
    CHECK(SOMAXCONN_HINT(10) >= 10);
    CHECK_IS(InterlockedExchange8(&flag, 2), 1);
    CHECK_IS(flag, 2);
    EnterCriticalSection(&zeros);
    CHECK(TryEnterCriticalSection(&zeros));
    LeaveCriticalSection(&zeros);
    LeaveCriticalSection(&zeros);
    _ASSERT(own == 5);
    _ASSERTE(sizeof(packet) > sizeof(OVERLAPPED));
    CHECK(SUCCEEDED(S_OK) && FAILED(E_FAIL) && FAILED(HRESULT_FROM_WIN32(ERROR_ACCESS_DENIED)));
    CHECK(_WIN32_WINNT >= _WIN32_WINNT_WIN10);
    CHECK_IS(CloseHandle(thread), TRUE);
    CHECK_IS(CloseHandle(port), TRUE);
    descriptors_are_those_of_the_reference();
    return finish();
}
