/* A forked child and the files of its parent: it reads and writes where no OVERLAPPED is needed,
 * closes its copies, and has its own operations on files. The parent's operations in flight
 * continue unaffected. */
#include <winsock2.h>
#include <windows.h>

#include <sys/stat.h>
#include <sys/wait.h>

#include "check.h"
#include "overlapped.h"

static char name[64], pipe_name[64];

static HANDLE opens(const char *path, DWORD disposition, DWORD flags)
{
    HANDLE file = CreateFileA(path, GENERIC_READ | GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE, NULL,
                              disposition, flags, NULL);
    CHECK(file != INVALID_HANDLE_VALUE);
    return file;
}

static OVERLAPPED at_start(void)
{
    OVERLAPPED overlapped = fresh(NULL);
    overlapped.Offset = overlapped.OffsetHigh = 0;
    return overlapped;
}

static void be_the_child(HANDLE plain, HANDLE pipe, HANDLE port, LPOVERLAPPED of_parent)
{
    OVERLAPPED overlapped = at_start();
    DWORD done = UNTOUCHED;
    ULONG_PTR key;
    LPOVERLAPPED which;
    char bytes[16];
    HANDLE own, own_port, made;
    /* What needs nothing of the parent's. */
    CHECK_IS(SetFilePointer(plain, 0, NULL, FILE_BEGIN), 0);
    CHECK(ReadFile(plain, bytes, sizeof bytes, &done, NULL));
    CHECK(done == 6 && memcmp(bytes, "parent", 6) == 0);
    CHECK(WriteFile(plain, "+child", 6, &done, NULL));
    /* What does. */
    CHECK_FALSE(ReadFile(pipe, bytes, 1, &done, &overlapped), ERROR_INVALID_HANDLE);
    SetLastError(0);
    CHECK(CreateIoCompletionPort(pipe, port, 1, 0) == NULL);
    CHECK_FALSE(CancelIoEx(pipe, of_parent), ERROR_NOT_FOUND);
    CHECK_FALSE(CancelIoEx(pipe, NULL), ERROR_NOT_FOUND);
    CHECK_IS(of_parent->Internal, STATUS_PENDING);
    CHECK(CloseHandle(pipe) && CloseHandle(plain));
    CHECK_FALSE(CloseHandle(plain), ERROR_INVALID_HANDLE);
    /* Its own. */
    own = opens(name, OPEN_EXISTING, FILE_FLAG_OVERLAPPED);
    own_port = CreateIoCompletionPort(own, NULL, 7, 0);
    CHECK(own_port != NULL);
    overlapped = at_start();
    if (!WriteFile(own, "CHILD", 5, NULL, &overlapped))
        CHECK_IS(GetLastError(), ERROR_IO_PENDING);
    CHECK_ENDED(own_port, 7, &overlapped, 5);
    overlapped = at_start();
    if (!ReadFile(own, bytes, 12, NULL, &overlapped))
        CHECK_IS(GetLastError(), ERROR_IO_PENDING);
    CHECK(GetQueuedCompletionStatus(own_port, &done, &key, &which, SOON));
    CHECK(done == 12 && memcmp(bytes, "CHILDt+child", 12) == 0);
    made = opens(pipe_name, OPEN_EXISTING, FILE_FLAG_OVERLAPPED);
    CHECK(CloseHandle(made) && CloseHandle(own) && CloseHandle(own_port));
}

int main(void)
{
    HANDLE plain, pipe, port, temporary;
    OVERLAPPED overlapped = at_start(), other = at_start();
    char gone[80], byte = 0;
    DWORD done = UNTOUCHED;
    pid_t child;
    int outcome = -1;
    start();
    snprintf(name, sizeof name, "/tmp/cp-files-forked-%d", (int)getpid());
    snprintf(pipe_name, sizeof pipe_name, "/tmp/cp-pipe-forked-%d", (int)getpid());
    snprintf(gone, sizeof gone, "%s-gone", name);
    CHECK_IS(mkfifo(pipe_name, 0600), 0);
    plain = opens(name, CREATE_ALWAYS, 0);
    CHECK(WriteFile(plain, "parent", 6, &done, NULL));
    temporary = opens(gone, CREATE_ALWAYS, FILE_FLAG_DELETE_ON_CLOSE);
    pipe = opens(pipe_name, OPEN_EXISTING, FILE_FLAG_OVERLAPPED);
    port = CreateIoCompletionPort(pipe, NULL, 5, 0);
    CHECK(port != NULL);
    CHECK_FALSE(ReadFile(pipe, &byte, 1, NULL, &overlapped), ERROR_IO_PENDING);
    child = fork_at_rest();
    if (child == 0) {
        /* Its parent's name is not its own to take away. */
        CHECK(CloseHandle(temporary));
        CHECK_IS(access(gone, F_OK), 0);
        be_the_child(plain, pipe, port, &overlapped);
        if (is_slow()) /* Valgrind asks about memory that the other threads have lost here */
            execl("/bin/true", "true", (char *)NULL);
        _exit(0);
    }
    CHECK(waitpid(child, &outcome, 0) == child);
    CHECK_IS(outcome, 0);
    CHECK(!HasOverlappedIoCompleted(&overlapped));
    CHECK_FALSE(WriteFile(pipe, "x", 1, NULL, &other), ERROR_IO_PENDING);
    CHECK(GetOverlappedResult(pipe, &overlapped, &done, TRUE));
    CHECK(done == 1 && byte == 'x');
    CHECK(GetOverlappedResult(pipe, &other, &done, TRUE));
    CHECK(CloseHandle(temporary));
    CHECK(access(gone, F_OK) != 0);
    CHECK(CloseHandle(plain) && CloseHandle(pipe) && CloseHandle(port));
    CHECK(DeleteFileA(name) && DeleteFileA(pipe_name));
    return finish();
}
