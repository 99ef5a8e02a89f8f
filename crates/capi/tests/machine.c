/* The machine, times of the day, memory, the standard streams, and what stops a program. */
/* As programs have it that count on no such function. */
#define YieldProcessor() ((void)0)
#include <winsock2.h>
#include <bcrypt.h>
#include <conio.h>
#include <io.h>
#include <tchar.h>
#include <windows.h>

#include <signal.h>
#include <sys/wait.h>

#include "check.h"

static void the_machine_is_described(void)
{
    SYSTEM_INFO info, native;
    memset(&info, 0xFF, sizeof info);
    GetSystemInfo(&info);
    GetNativeSystemInfo(&native);
    CHECK_IS(memcmp(&info, &native, sizeof info), 0);
    CHECK_IS(info.dwNumberOfProcessors, sysconf(_SC_NPROCESSORS_ONLN));
    CHECK_IS(info.dwPageSize, sysconf(_SC_PAGESIZE));
    CHECK_IS(info.dwAllocationGranularity, 0x10000);
    CHECK((info.dwActiveProcessorMask & 1) == 1);
    CHECK(info.wProcessorArchitecture == PROCESSOR_ARCHITECTURE_AMD64 ||
          info.wProcessorArchitecture == PROCESSOR_ARCHITECTURE_ARM64);
    CHECK_IS(info.dwOemId & 0xFFFF, info.wProcessorArchitecture);
    CHECK((BYTE *)&info > (BYTE *)info.lpMinimumApplicationAddress &&
          (BYTE *)&info <= (BYTE *)info.lpMaximumApplicationAddress);
    CHECK_IS(sizeof info, 48);
}

static void times_of_the_day_have_parts(void)
{
    FILETIME file;
    SYSTEMTIME parts, now;
    ULARGE_INTEGER ticks;
    /* 2000-02-29 12:34:56.789, which was a Tuesday. */
    ticks.QuadPart = (ULONGLONG)(951827696LL + 11644473600LL) * 10000000u + 7890000;
    file.dwLowDateTime = ticks.LowPart;
    file.dwHighDateTime = ticks.HighPart;
    CHECK_IS(FileTimeToSystemTime(&file, &parts), TRUE);
    CHECK_IS(parts.wYear, 2000);
    CHECK_IS(parts.wMonth, 2);
    CHECK_IS(parts.wDay, 29);
    CHECK_IS(parts.wDayOfWeek, 2);
    CHECK_IS(parts.wHour, 12);
    CHECK_IS(parts.wMinute, 34);
    CHECK_IS(parts.wSecond, 56);
    CHECK_IS(parts.wMilliseconds, 789);
    ticks.QuadPart = 0; /* the first day */
    file.dwLowDateTime = file.dwHighDateTime = 0;
    CHECK_IS(FileTimeToSystemTime(&file, &parts), TRUE);
    CHECK_IS(parts.wYear, 1601);
    CHECK_IS(parts.wDayOfWeek, 1);
    file.dwHighDateTime = 0x80000000;
    CHECK_FALSE(FileTimeToSystemTime(&file, &parts), ERROR_INVALID_PARAMETER);
    GetSystemTime(&now);
    CHECK(now.wYear >= 2024 && now.wMonth >= 1 && now.wMonth <= 12 && now.wMilliseconds < 1000);
    GetLocalTime(&now);
    CHECK(now.wYear >= 2024 && now.wDay >= 1 && now.wDay <= 31);
}

static void memory_is_the_heaps(void)
{
    HANDLE heap = GetProcessHeap();
    char *zeros = (char *)HeapAlloc(heap, HEAP_ZERO_MEMORY, 100);
    char *more = (char *)GlobalAlloc(GPTR, 10);
    void *aligned = _aligned_malloc(100, 64);
    int i;
    CHECK(heap != NULL && zeros != NULL && more != NULL);
    for (i = 0; i < 100; i++) {
        CHECK_IS(zeros[i], 0);
    }
    CHECK_IS(more[9], 0);
    CHECK_IS((ULONG_PTR)aligned % 64, 0);
    CHECK_IS(HeapFree(heap, 0, zeros), TRUE);
    CHECK_IS(HeapFree(heap, 0, NULL), TRUE);
    CHECK(GlobalFree(more) == NULL);
    _aligned_free(aligned);
    CHECK(HeapFree(heap, 0, HeapAlloc(heap, 0, 0)));
    SetLastError(0);
    CHECK(GlobalAlloc(0x2, 10) == NULL); /* movable */
    CHECK_IS(GetLastError(), ERROR_NOT_SUPPORTED);
}

static BOOL writes(HANDLE file, LPCVOID bytes, DWORD count, LPDWORD done, LPOVERLAPPED overlapped)
{
    return WriteFile(file, bytes, count, done, overlapped);
}

static BOOL reads(HANDLE file, LPVOID bytes, DWORD count, LPDWORD done, LPOVERLAPPED overlapped)
{
    return ReadFile(file, bytes, count, done, overlapped);
}

static void text_is_that_of_one_code_page(void)
{
    CHECK(SetConsoleCP(949) && SetConsoleOutputCP(CP_UTF8));
    CHECK_IS(GetConsoleCP(), CP_UTF8);
    CHECK_IS(GetConsoleOutputCP(), CP_UTF8);
}

static void a_millisecond_is_as_fine_as_asked_for(void)
{
    DWORD began = timeGetTime();
    CHECK_IS(timeBeginPeriod(1), TIMERR_NOERROR);
    CHECK_IS(timeBeginPeriod(0), TIMERR_NOCANDO);
    CHECK(GetTickCount() - began < 0x80000000u); /* the same clock: it does not lag */
    Sleep(2);
    YieldProcessor();
    CHECK(timeGetTime() - began >= 2);
    CHECK_IS(timeEndPeriod(1), TIMERR_NOERROR);
    CHECK_IS(timeEndPeriod(0), TIMERR_NOCANDO);
}

static void pages_are_reserved_and_committed(void)
{
    enum { SIZE = 100000 };
    char *pages = (char *)VirtualAlloc(NULL, SIZE, MEM_COMMIT | MEM_RESERVE, PAGE_READWRITE), *reserved;
    CHECK(pages && (uintptr_t)pages % 0x10000 == 0);
    CHECK(pages[0] == 0 && pages[SIZE - 1] == 0);
    memset(pages, 'x', SIZE);
    CHECK_FALSE(VirtualFree(pages, SIZE, MEM_RELEASE), ERROR_INVALID_PARAMETER);
    CHECK_FALSE(VirtualFree(pages + 4096, 0, MEM_RELEASE), ERROR_INVALID_PARAMETER);
    CHECK(VirtualFree(pages, SIZE, MEM_DECOMMIT));
    CHECK(VirtualAlloc(pages, SIZE, MEM_COMMIT, PAGE_READWRITE) == pages);
    CHECK_IS(pages[SIZE / 2], 0);
    CHECK_FALSE(VirtualFree(pages + 4096, 0, MEM_DECOMMIT), ERROR_INVALID_PARAMETER);
    CHECK(VirtualFree(pages, 0, MEM_DECOMMIT));
    CHECK(VirtualFree(pages, 0, MEM_RELEASE));
    CHECK_FALSE(VirtualFree((LPVOID)0x10000, 0, MEM_RELEASE), ERROR_INVALID_PARAMETER);
    reserved = (char *)VirtualAlloc(NULL, SIZE, MEM_RESERVE, PAGE_NOACCESS);
    CHECK(reserved != NULL);
    CHECK(VirtualAlloc(reserved + 5000, 1, MEM_COMMIT, PAGE_READWRITE) == reserved + 4096);
    reserved[4096] = 'x';
    CHECK(VirtualFree(reserved, 0, MEM_RELEASE));
    SetLastError(0);
    CHECK(VirtualAlloc(NULL, 0, MEM_COMMIT, PAGE_READWRITE) == NULL);
    CHECK_IS(GetLastError(), ERROR_INVALID_PARAMETER);
    CHECK(VirtualAlloc(NULL, SIZE, MEM_COMMIT, 77) == NULL);
    SetLastError(0);
    CHECK(VirtualAlloc(NULL, (SIZE_T)1 << 62, MEM_RESERVE, PAGE_NOACCESS) == NULL);
    CHECK_IS(GetLastError(), ERROR_NOT_ENOUGH_MEMORY);
}

static void a_message_goes_to_standard_error(void)
{
    int pipes[2], kept = dup(2), count;
    char text[64];
    CHECK_IS(pipe(pipes), 0);
    CHECK_IS(dup2(pipes[1], 2), 2);
    CHECK_IS(MessageBoxA(NULL, "bad", "bind()", MB_ICONERROR), IDOK);
    CHECK_IS(MessageBoxW(NULL, L"\x20AC", NULL, MB_OK), IDOK);
    SetLastError(0);
    CHECK_IS(MessageBoxA(NULL, "so?", "ask", MB_YESNO), 0);
    CHECK_IS(GetLastError(), ERROR_NOT_SUPPORTED);
    CHECK_IS(dup2(kept, 2), 2);
    count = (int)read(pipes[0], text, sizeof text);
    CHECK(count == 32 && memcmp(text, "bind(): bad\nError: \xE2\x82\xAC\nask: so?\n", (size_t)count) == 0);
    close(kept);
    close(pipes[0]);
    close(pipes[1]);
}

static void the_version_is_a_recent_one(void)
{
    OSVERSIONINFO version;
    version.dwOSVersionInfoSize = sizeof version;
    CHECK(GetVersionEx(&version));
    CHECK(version.dwMajorVersion >= 10 && version.dwPlatformId == VER_PLATFORM_WIN32_NT);
    version.dwOSVersionInfoSize = 4;
    CHECK_FALSE(GetVersionEx(&version), ERROR_INSUFFICIENT_BUFFER);
}

static void what_is_secret_is_wiped(void)
{
    char secret[4] = {1, 2, 3, 4};
    CHECK(SecureZeroMemory(secret + 1, 2) == secret + 1);
    CHECK(secret[0] == 1 && secret[1] == 0 && secret[2] == 0 && secret[3] == 4);
}

static void bytes_are_random(void)
{
    UCHAR one[64] = {0}, other[64] = {0};
    CHECK_IS(BCryptGenRandom(NULL, one, sizeof one, BCRYPT_USE_SYSTEM_PREFERRED_RNG), 0);
    CHECK_IS(BCryptGenRandom(NULL, other, sizeof other, BCRYPT_USE_SYSTEM_PREFERRED_RNG), 0);
    CHECK(memcmp(one, other, sizeof one) != 0);
    CHECK_IS(BCryptGenRandom(NULL, one, 0, BCRYPT_USE_SYSTEM_PREFERRED_RNG), 0);
    CHECK_IS(BCryptGenRandom(NULL, one, sizeof one, 0), (NTSTATUS)0xC0000008);
    CHECK_IS(BCryptGenRandom(NULL, NULL, 1, BCRYPT_USE_SYSTEM_PREFERRED_RNG), (NTSTATUS)0xC000000D);
#if HAS_SOCKET_CALLS
    {
        unsigned int first = 0, second = 0, third = 0;
        CHECK(rand_s(&first) == 0 && rand_s(&second) == 0 && rand_s(&third) == 0);
        CHECK(first != second || second != third);
        CHECK_IS(rand_s(NULL), EINVAL);
    }
#endif
}

static void streams_are_written_and_read(void)
{
    HANDLE out = GetStdHandle(STD_OUTPUT_HANDLE), in = GetStdHandle(STD_INPUT_HANDLE);
    int pipes[2], kept_out = dup(1), kept_in = dup(0), count;
    char text[16];
    DWORD done = UNTOUCHED;
    OVERLAPPED overlapped;
    const WCHAR no_letter = (WCHAR)0xDC00;
    memset(&overlapped, 0, sizeof overlapped);
    CHECK(GetStdHandle(STD_ERROR_HANDLE) != out && out != in && in != NULL);
    SetLastError(0);
    CHECK(GetStdHandle(5) == INVALID_HANDLE_VALUE);
    CHECK_IS(GetLastError(), ERROR_INVALID_HANDLE);
    CHECK_IS(pipe(pipes), 0);
    CHECK(dup2(pipes[1], 1) == 1 && dup2(pipes[0], 0) == 0);
    CHECK_IS(_kbhit(), 0);
    printf("held"); /* goes first */
    CHECK_IS(WriteFile(out, " ba", 3, &done, NULL), TRUE);
    CHECK_IS(GetFileType(out), FILE_TYPE_PIPE);
    CHECK_IS(FlushFileBuffers(out), TRUE);
    CHECK_IS(done, 3);
    CHECK_IS(writes(out, "ck", 2, &done, NULL), TRUE); /* a variable may be NULL */
    CHECK_IS(done, 2);
    /* With an OVERLAPPED it still ends immediately. */
    CHECK_IS(writes(out, "!", 1, NULL, &overlapped), TRUE);
    CHECK(HasOverlappedIoCompleted(&overlapped) && overlapped.InternalHigh == 1);
    CHECK_IS(WriteConsoleW(out, L"\x20AC", 1, &done, NULL), TRUE);
    CHECK_IS(done, 1);
    CHECK_IS(WriteConsoleW(out, &no_letter, 1, &done, NULL), TRUE);
    CHECK(_kbhit());
    text[0] = (char)_getch();
    CHECK_IS(ReadFile(in, text + 1, 3, &done, NULL), TRUE);
    CHECK_IS(done, 3);
    CHECK_IS(reads(in, text + 4, sizeof text - 4, NULL, &overlapped), TRUE);
    count = 4 + (int)overlapped.InternalHigh;
    fflush(stdout);
    CHECK(dup2(kept_out, 1) == 1 && dup2(kept_in, 0) == 0);
    CHECK_IS(count, 16);
    CHECK(memcmp(text, "held back!\xE2\x82\xAC\xEF\xBF\xBD", 16) == 0);
    CHECK_FALSE(WriteFile((HANDLE)&count, "x", 1, &done, NULL), ERROR_INVALID_HANDLE);
    CHECK_FALSE(ReadFile(NULL, text, 1, &done, NULL), ERROR_INVALID_HANDLE);
    CHECK_IS(_isatty(pipes[0]), 0);
    CHECK(_close(pipes[0]) == 0 && _close(pipes[1]) == 0 && _close(kept_out) == 0 && _close(kept_in) == 0);
}

/* ---- what stops a program ------------------------------------------------------------------------------ */

static HANDLE told;
static volatile LONG calls_of_first, calls_of_last, last_event; /* `first`: that comes first */
static DWORD main_thread;

static BOOL WINAPI comes_last(DWORD event)
{
    CHECK(GetCurrentThreadId() != main_thread);
    InterlockedIncrement(&calls_of_last);
    last_event = (LONG)event;
    CHECK_IS(SetEvent(told), TRUE);
    return TRUE;
}

static BOOL WINAPI comes_first(DWORD event)
{
    (void)event;
    InterlockedIncrement(&calls_of_first);
    return event == CTRL_BREAK_EVENT ? (SetEvent(told), TRUE) : FALSE;
}

static volatile sig_atomic_t own_signals;

static void counts_its_own(int signal)
{
    (void)signal;
    own_signals++;
}

/* To ignore Ctrl+C changes nothing of the other signals. */
static void other_signals_stay_the_programs(void)
{
    CHECK(signal(SIGTERM, counts_its_own) != SIG_ERR);
    CHECK_IS(SetConsoleCtrlHandler(NULL, TRUE), TRUE);
    CHECK_IS(raise(SIGINT), 0);
    CHECK_IS(raise(SIGTERM), 0);
    CHECK_IS(own_signals, 1);
    CHECK_IS(SetConsoleCtrlHandler(NULL, FALSE), TRUE);
    CHECK_IS(raise(SIGTERM), 0);
    CHECK_IS(own_signals, 2);
}

static void signals_are_control_events(void)
{
    static const struct {
        int signal;
        DWORD event;
    } events[] = {{SIGINT, CTRL_C_EVENT}, {SIGHUP, CTRL_CLOSE_EVENT}, {SIGTERM, CTRL_SHUTDOWN_EVENT}};
    size_t i;
    main_thread = GetCurrentThreadId();
    told = CreateEvent(NULL, FALSE, FALSE, NULL);
    CHECK_FALSE(SetConsoleCtrlHandler(comes_last, FALSE), ERROR_INVALID_PARAMETER);
    CHECK_IS(SetConsoleCtrlHandler(comes_last, TRUE), TRUE);
    CHECK_IS(SetConsoleCtrlHandler(comes_first, TRUE), TRUE);
    for (i = 0; i < 3; i++) {
        CHECK_IS(raise(events[i].signal), 0);
        CHECK_IS(WaitForSingleObject(told, SOON), WAIT_OBJECT_0);
        CHECK_IS(last_event, events[i].event);
        CHECK_IS(calls_of_first, i + 1);
    }
    CHECK_IS(raise(SIGQUIT), 0); /* the routine that was added last is enough */
    CHECK_IS(WaitForSingleObject(told, SOON), WAIT_OBJECT_0);
    CHECK_IS(calls_of_last, 3);
    CHECK_IS(SetConsoleCtrlHandler(comes_first, FALSE), TRUE);
    CHECK_IS(raise(SIGINT), 0);
    CHECK_IS(WaitForSingleObject(told, SOON), WAIT_OBJECT_0);
    CHECK_IS(calls_of_first, 4);
    CHECK_IS(SetConsoleCtrlHandler(NULL, TRUE), TRUE); /* Ctrl+C does nothing */
    CHECK_IS(raise(SIGINT), 0);
    CHECK_IS(WaitForSingleObject(told, A_WHILE), WAIT_TIMEOUT);
    CHECK_IS(SetConsoleCtrlHandler(NULL, FALSE), TRUE);
    CHECK_IS(raise(SIGINT), 0);
    CHECK_IS(WaitForSingleObject(told, SOON), WAIT_OBJECT_0);
    CHECK_IS(SetConsoleCtrlHandler(comes_last, FALSE), TRUE);
    CHECK_IS(CloseHandle(told), TRUE);
}

/* ---- a forked child ------------------------------------------------------------------------------------- */

static void is_ended_by_a_signal(void)
{
    raise(SIGTERM);
    Sleep(SOON);
}

static void has_routines_of_its_own(void)
{
    int descriptor;
    main_thread = GetCurrentThreadId();
    told = CreateEvent(NULL, FALSE, FALSE, NULL);
    CHECK_FALSE(SetConsoleCtrlHandler(comes_last, FALSE), ERROR_INVALID_PARAMETER); /* that is its parent's */
    CHECK_IS(SetConsoleCtrlHandler(comes_last, TRUE), TRUE);
    CHECK_IS(raise(SIGTERM), 0);
    CHECK_IS(WaitForSingleObject(told, SOON), WAIT_OBJECT_0);
    /* Like a program that runs in the background: the library does not depend on descriptors. */
    for (descriptor = 3; descriptor < 1000; descriptor++) {
        close(descriptor);
    }
    CHECK_IS(raise(SIGHUP), 0);
    CHECK_IS(WaitForSingleObject(told, SOON), WAIT_OBJECT_0);
    CHECK_IS(last_event, CTRL_CLOSE_EVENT);
    raise(SIGUSR1);
}

static void ignores_what_its_parent_ignored(void)
{
    CHECK_IS(raise(SIGINT), 0);
    CHECK_IS(SetConsoleCtrlHandler(comes_last, TRUE), TRUE);
    told = CreateEvent(NULL, FALSE, FALSE, NULL);
    CHECK_IS(raise(SIGINT), 0);
    CHECK_IS(WaitForSingleObject(told, A_WHILE), WAIT_TIMEOUT);
    CHECK_IS(SetConsoleCtrlHandler(NULL, FALSE), TRUE);
    CHECK_IS(raise(SIGINT), 0);
    CHECK_IS(WaitForSingleObject(told, SOON), WAIT_OBJECT_0);
    raise(SIGUSR2);
}

/* A child ends with a signal: at an exit Valgrind would report memory that threads of the parent
 * have allocated. */
static void check_end(void (*child)(void), int signal)
{
    int status;
    pid_t name = fork_at_rest();
    if (name == 0) {
        child();
        _exit(1);
    }
    CHECK_IS(waitpid(name, &status, 0), name);
    CHECK(WIFSIGNALED(status));
    CHECK_IS(WTERMSIG(status), signal);
}

static void a_child_begins_without_routines(void)
{
    CHECK_IS(SetConsoleCtrlHandler(comes_last, TRUE), TRUE);
    check_end(is_ended_by_a_signal, SIGTERM);
    check_end(has_routines_of_its_own, SIGUSR1);
    CHECK_IS(SetConsoleCtrlHandler(NULL, TRUE), TRUE);
    check_end(ignores_what_its_parent_ignored, SIGUSR2);
    CHECK_IS(SetConsoleCtrlHandler(NULL, FALSE), TRUE);
    CHECK_IS(SetConsoleCtrlHandler(comes_last, FALSE), TRUE);
}

int _tmain(int count, _TCHAR *words[])
{
    CHECK_IS(count, 1);
    CHECK(_tcslen(words[0]) > 0);
    start();
    the_machine_is_described();
    times_of_the_day_have_parts();
    memory_is_the_heaps();
    text_is_that_of_one_code_page();
    a_millisecond_is_as_fine_as_asked_for();
    what_is_secret_is_wiped();
    bytes_are_random();
    pages_are_reserved_and_committed();
    a_message_goes_to_standard_error();
    the_version_is_a_recent_one();
    streams_are_written_and_read();
    other_signals_stay_the_programs();
    signals_are_control_events();
    a_child_begins_without_routines();
    return finish();
}
