/*
 * cp_absent.h: functions of the reference that programs call and that this library lacks. Included
 * by <windows.h>.
 *
 * Each has the reference's declaration, so that a call is type-checked like any other and then
 * refused: the compiler reports that it is not available, and why. Without the declaration, C would
 * guess one, and the linker would report a missing symbol. Once a function is implemented, it moves
 * to the header of its subject.
 */
#ifndef CP_ABSENT_H
#define CP_ABSENT_H

#include <cp_clocks.h>
#include <cp_memory.h>
#include <cp_pool.h>
#include <cp_ports.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Overlapped operations ------------------------------------------------------------------------- */

CP_ABSENT("a call that waits is not cancelled: one with an OVERLAPPED, and CancelIoEx")
extern BOOL CancelSynchronousIo(HANDLE hThread);
CP_ABSENT("there are no APCs: ReadFile with an event, or with a port")
extern BOOL ReadFileEx(HANDLE hFile, LPVOID lpBuffer, DWORD nNumberOfBytesToRead, LPOVERLAPPED lpOverlapped,
                       LPOVERLAPPED_COMPLETION_ROUTINE lpCompletionRoutine);
CP_ABSENT("there are no APCs: WriteFile with an event, or with a port")
extern BOOL WriteFileEx(HANDLE hFile, LPCVOID lpBuffer, DWORD nNumberOfBytesToWrite, LPOVERLAPPED lpOverlapped,
                        LPOVERLAPPED_COMPLETION_ROUTINE lpCompletionRoutine);
CP_ABSENT("devices have commands of the system: ioctl(2)")
extern BOOL DeviceIoControl(HANDLE hDevice, DWORD dwIoControlCode, LPVOID lpInBuffer, DWORD nInBufferSize,
                            LPVOID lpOutBuffer, DWORD nOutBufferSize, LPDWORD lpBytesReturned,
                            LPOVERLAPPED lpOverlapped);
CP_ABSENT("pipes with names: AF_UNIX sockets, and AcceptEx")
extern BOOL ConnectNamedPipe(HANDLE hNamedPipe, LPOVERLAPPED lpOverlapped);

/* ---- Calls to a thread (APCs) ------------------------------------------------------------------------ */

typedef VOID(CALLBACK *PAPCFUNC)(ULONG_PTR Parameter);
CP_ABSENT("there are no APCs: post a packet")
extern DWORD QueueUserAPC(PAPCFUNC pfnAPC, HANDLE hThread, ULONG_PTR dwData);

/* ---- Fibers ------------------------------------------------------------------------------------------- */

typedef VOID(WINAPI *LPFIBER_START_ROUTINE)(LPVOID lpFiberParameter);
CP_ABSENT("fibers") extern LPVOID ConvertThreadToFiber(LPVOID lpParameter);
CP_ABSENT("fibers") extern LPVOID ConvertThreadToFiberEx(LPVOID lpParameter, DWORD dwFlags);
CP_ABSENT("fibers") extern BOOL ConvertFiberToThread(void);
CP_ABSENT("fibers")
extern LPVOID CreateFiber(SIZE_T dwStackSize, LPFIBER_START_ROUTINE lpStartAddress, LPVOID lpParameter);
CP_ABSENT("fibers")
extern LPVOID CreateFiberEx(SIZE_T dwStackCommitSize, SIZE_T dwStackReserveSize, DWORD dwFlags,
                            LPFIBER_START_ROUTINE lpStartAddress, LPVOID lpParameter);
CP_ABSENT("fibers") extern VOID DeleteFiber(LPVOID lpFiber);
CP_ABSENT("fibers") extern VOID SwitchToFiber(LPVOID lpFiber);

/* ---- Threads and processes ----------------------------------------------------------------------------- */

#define THREAD_PRIORITY_IDLE (-15)
#define THREAD_PRIORITY_LOWEST (-2)
#define THREAD_PRIORITY_BELOW_NORMAL (-1)
#define THREAD_PRIORITY_NORMAL 0
#define THREAD_PRIORITY_ABOVE_NORMAL 1
#define THREAD_PRIORITY_HIGHEST 2
#define THREAD_PRIORITY_TIME_CRITICAL 15
#define DUPLICATE_SAME_ACCESS 0x2

CP_ABSENT("a thread has no handle without CreateThread") extern HANDLE GetCurrentThread(void);
CP_ABSENT("processes have no handles") extern HANDLE GetCurrentProcess(void);
CP_ABSENT("processes have no handles")
extern HANDLE OpenProcess(DWORD dwDesiredAccess, BOOL bInheritHandle, DWORD dwProcessId);
CP_ABSENT("processes have no handles") extern BOOL TerminateProcess(HANDLE hProcess, UINT uExitCode);
CP_ABSENT("handles are not duplicated")
extern BOOL DuplicateHandle(HANDLE hSourceProcessHandle, HANDLE hSourceHandle, HANDLE hTargetProcessHandle,
                            LPHANDLE lpTargetHandle, DWORD dwDesiredAccess, BOOL bInheritHandle,
                            DWORD dwOptions);
CP_ABSENT("threads are ended by themselves") extern BOOL TerminateThread(HANDLE hThread, DWORD dwExitCode);
CP_ABSENT("a thread that runs is not suspended") extern DWORD SuspendThread(HANDLE hThread);
CP_ABSENT("thread priorities: setpriority(2)") extern BOOL SetThreadPriority(HANDLE hThread, int nPriority);
CP_ABSENT("thread priorities: getpriority(2)") extern int GetThreadPriority(HANDLE hThread);
CP_ABSENT("affinity: pthread_setaffinity_np(3)")
extern DWORD_PTR SetThreadAffinityMask(HANDLE hThread, DWORD_PTR dwThreadAffinityMask);
CP_ABSENT("affinity: pthread_setaffinity_np(3)")
extern DWORD SetThreadIdealProcessor(HANDLE hThread, DWORD dwIdealProcessor);
CP_ABSENT("waiting and signalling in one step")
extern DWORD SignalObjectAndWait(HANDLE hObjectToSignal, HANDLE hObjectToWaitOn, DWORD dwMilliseconds,
                                 BOOL bAlertable);
CP_ABSENT("WaitOnAddress: a condition variable, or futex(2)")
extern BOOL WaitOnAddress(volatile VOID *Address, PVOID CompareAddress, SIZE_T AddressSize,
                          DWORD dwMilliseconds);

/* ---- File mappings with names ---------------------------------------------------------------------------- */

CP_ABSENT("file mappings have no names: a view that a forked child inherits, or shm_open(3)")
extern HANDLE OpenFileMappingA(DWORD dwDesiredAccess, BOOL bInheritHandle, LPCSTR lpName);
CP_ABSENT("file mappings have no names: a view that a forked child inherits, or shm_open(3)")
extern HANDLE OpenFileMappingW(DWORD dwDesiredAccess, BOOL bInheritHandle, LPCWSTR lpName);

/* ---- Thread pools and timer queues ------------------------------------------------------------------------ */

typedef struct _TP_WAIT TP_WAIT, *PTP_WAIT;
typedef struct _TP_TIMER TP_TIMER, *PTP_TIMER;
typedef struct _TP_POOL TP_POOL, *PTP_POOL;
typedef VOID(CALLBACK *PTP_TIMER_CALLBACK)(PTP_CALLBACK_INSTANCE Instance, PVOID Context, PTP_TIMER Timer);
CP_ABSENT("the system's thread pool: a waitable timer")
extern PTP_TIMER CreateThreadpoolTimer(PTP_TIMER_CALLBACK pfnti, PVOID pv, PTP_CALLBACK_ENVIRON pcbe);
CP_ABSENT("timer queues: a waitable timer") extern HANDLE CreateTimerQueue(void);
CP_ABSENT("timer queues: a waitable timer")
extern BOOL CreateTimerQueueTimer(PHANDLE phNewTimer, HANDLE TimerQueue,
                                  VOID(CALLBACK *Callback)(PVOID, BOOLEAN), PVOID Parameter, DWORD DueTime,
                                  DWORD Period, ULONG Flags);
CP_ABSENT("timer queues: a waitable timer")
extern BOOL DeleteTimerQueueTimer(HANDLE TimerQueue, HANDLE Timer, HANDLE CompletionEvent);
CP_ABSENT("timer queues: a waitable timer") extern BOOL DeleteTimerQueue(HANDLE TimerQueue);

/* ---- Memory ---------------------------------------------------------------------------------------------- */

CP_ABSENT("heaps other than the process's own")
extern HANDLE HeapCreate(DWORD flOptions, SIZE_T dwInitialSize, SIZE_T dwMaximumSize);
CP_ABSENT("heaps other than the process's own") extern BOOL HeapDestroy(HANDLE hHeap);
CP_ABSENT("blocks do not tell their size: realloc(3)")
extern LPVOID HeapReAlloc(HANDLE hHeap, DWORD dwFlags, LPVOID lpMem, SIZE_T dwBytes);
CP_ABSENT("blocks do not tell their size") extern SIZE_T HeapSize(HANDLE hHeap, DWORD dwFlags, LPCVOID lpMem);

/* ---- Pipes, and what else is a file there ------------------------------------------------------------------ */

#define PIPE_ACCESS_INBOUND 0x1
#define PIPE_ACCESS_OUTBOUND 0x2
#define PIPE_ACCESS_DUPLEX 0x3
#define PIPE_CLIENT_END 0x0
#define PIPE_SERVER_END 0x1
#define PIPE_WAIT 0x0
#define PIPE_NOWAIT 0x1
#define PIPE_READMODE_BYTE 0x0
#define PIPE_READMODE_MESSAGE 0x2
#define PIPE_TYPE_BYTE 0x0
#define PIPE_TYPE_MESSAGE 0x4
#define PIPE_ACCEPT_REMOTE_CLIENTS 0x0
#define PIPE_REJECT_REMOTE_CLIENTS 0x8
#define PIPE_UNLIMITED_INSTANCES 255
#define NMPWAIT_WAIT_FOREVER 0xFFFFFFFFU
#define NMPWAIT_NOWAIT 0x1
#define NMPWAIT_USE_DEFAULT_WAIT 0x0

CP_ABSENT("pipes")
extern HANDLE CreateNamedPipeA(LPCSTR lpName, DWORD dwOpenMode, DWORD dwPipeMode, DWORD nMaxInstances,
                               DWORD nOutBufferSize, DWORD nInBufferSize, DWORD nDefaultTimeOut,
                               LPSECURITY_ATTRIBUTES lpSecurityAttributes);
CP_ABSENT("pipes")
extern HANDLE CreateNamedPipeW(LPCWSTR lpName, DWORD dwOpenMode, DWORD dwPipeMode, DWORD nMaxInstances,
                               DWORD nOutBufferSize, DWORD nInBufferSize, DWORD nDefaultTimeOut,
                               LPSECURITY_ATTRIBUTES lpSecurityAttributes);
CP_ABSENT("pipes: pipe(2)")
extern BOOL CreatePipe(PHANDLE hReadPipe, PHANDLE hWritePipe, LPSECURITY_ATTRIBUTES lpPipeAttributes,
                       DWORD nSize);
CP_ABSENT("pipes with names")
extern BOOL SetNamedPipeHandleState(HANDLE hNamedPipe, LPDWORD lpMode, LPDWORD lpMaxCollectionCount,
                                    LPDWORD lpCollectDataTimeout);
CP_ABSENT("pipes with names") extern BOOL DisconnectNamedPipe(HANDLE hNamedPipe);
CP_ABSENT("pipes: poll(2), and ioctl(2) with FIONREAD")
extern BOOL PeekNamedPipe(HANDLE hNamedPipe, LPVOID lpBuffer, DWORD nBufferSize, LPDWORD lpBytesRead,
                          LPDWORD lpTotalBytesAvail, LPDWORD lpBytesLeftThisMessage);
CP_ABSENT("the program's path: readlink(\"/proc/self/exe\")")
extern DWORD GetModuleFileNameA(HMODULE hModule, LPSTR lpFilename, DWORD nSize);
CP_ABSENT("the program's path: readlink(\"/proc/self/exe\")")
extern DWORD GetModuleFileNameW(HMODULE hModule, LPWSTR lpFilename, DWORD nSize);

/* ---- The console ------------------------------------------------------------------------------------------- */

#define FOREGROUND_BLUE 0x1
#define FOREGROUND_GREEN 0x2
#define FOREGROUND_RED 0x4
#define FOREGROUND_INTENSITY 0x8

typedef struct _COORD {
    SHORT X;
    SHORT Y;
} COORD, *PCOORD;

typedef struct _SMALL_RECT {
    SHORT Left;
    SHORT Top;
    SHORT Right;
    SHORT Bottom;
} SMALL_RECT, *PSMALL_RECT;

typedef struct _CONSOLE_SCREEN_BUFFER_INFO {
    COORD dwSize;
    COORD dwCursorPosition;
    WORD wAttributes;
    SMALL_RECT srWindow;
    COORD dwMaximumWindowSize;
} CONSOLE_SCREEN_BUFFER_INFO, *PCONSOLE_SCREEN_BUFFER_INFO;

typedef struct _CONSOLE_CURSOR_INFO {
    DWORD dwSize;
    BOOL bVisible;
} CONSOLE_CURSOR_INFO, *PCONSOLE_CURSOR_INFO;

typedef struct _KEY_EVENT_RECORD {
    BOOL bKeyDown;
    WORD wRepeatCount;
    WORD wVirtualKeyCode;
    WORD wVirtualScanCode;
    union {
        WCHAR UnicodeChar;
        CHAR AsciiChar;
    } uChar;
    DWORD dwControlKeyState;
} KEY_EVENT_RECORD, *PKEY_EVENT_RECORD;

typedef struct _MOUSE_EVENT_RECORD {
    COORD dwMousePosition;
    DWORD dwButtonState;
    DWORD dwControlKeyState;
    DWORD dwEventFlags;
} MOUSE_EVENT_RECORD, *PMOUSE_EVENT_RECORD;

typedef struct _WINDOW_BUFFER_SIZE_RECORD {
    COORD dwSize;
} WINDOW_BUFFER_SIZE_RECORD, *PWINDOW_BUFFER_SIZE_RECORD;

typedef struct _MENU_EVENT_RECORD {
    UINT dwCommandId;
} MENU_EVENT_RECORD, *PMENU_EVENT_RECORD;

typedef struct _FOCUS_EVENT_RECORD {
    BOOL bSetFocus;
} FOCUS_EVENT_RECORD, *PFOCUS_EVENT_RECORD;

typedef struct _INPUT_RECORD {
    WORD EventType;
    union {
        KEY_EVENT_RECORD KeyEvent;
        MOUSE_EVENT_RECORD MouseEvent;
        WINDOW_BUFFER_SIZE_RECORD WindowBufferSizeEvent;
        MENU_EVENT_RECORD MenuEvent;
        FOCUS_EVENT_RECORD FocusEvent;
    } Event;
} INPUT_RECORD, *PINPUT_RECORD;

#define KEY_EVENT 0x1
#define MOUSE_EVENT 0x2
#define WINDOW_BUFFER_SIZE_EVENT 0x4
#define MENU_EVENT 0x8
#define FOCUS_EVENT 0x10
#define ENABLE_PROCESSED_INPUT 0x1
#define ENABLE_LINE_INPUT 0x2
#define ENABLE_ECHO_INPUT 0x4
#define ENABLE_WINDOW_INPUT 0x8
#define ENABLE_MOUSE_INPUT 0x10
#define ENABLE_VIRTUAL_TERMINAL_INPUT 0x200
#define ENABLE_PROCESSED_OUTPUT 0x1
#define ENABLE_WRAP_AT_EOL_OUTPUT 0x2
#define ENABLE_VIRTUAL_TERMINAL_PROCESSING 0x4

CP_ABSENT("the console's events: read(2), termios(3)")
extern BOOL ReadConsoleInputA(HANDLE hConsoleInput, PINPUT_RECORD lpBuffer, DWORD nLength,
                              LPDWORD lpNumberOfEventsRead);
CP_ABSENT("the console's events: read(2), termios(3)")
extern BOOL ReadConsoleInputW(HANDLE hConsoleInput, PINPUT_RECORD lpBuffer, DWORD nLength,
                              LPDWORD lpNumberOfEventsRead);
CP_ABSENT("the console's events: poll(2)")
extern BOOL GetNumberOfConsoleInputEvents(HANDLE hConsoleInput, LPDWORD lpcNumberOfEvents);
CP_ABSENT("the console's screen: ioctl(2) with TIOCGWINSZ")
extern BOOL GetConsoleScreenBufferInfo(HANDLE hConsoleOutput,
                                       PCONSOLE_SCREEN_BUFFER_INFO lpConsoleScreenBufferInfo);
CP_ABSENT("the console's cursor: escape sequences")
extern BOOL SetConsoleCursorPosition(HANDLE hConsoleOutput, COORD dwCursorPosition);
CP_ABSENT("the console's cursor: escape sequences")
extern BOOL SetConsoleCursorInfo(HANDLE hConsoleOutput, const CONSOLE_CURSOR_INFO *lpConsoleCursorInfo);
CP_ABSENT("console attributes: escape sequences")
extern BOOL SetConsoleTextAttribute(HANDLE hConsoleOutput, WORD wAttributes);
CP_ABSENT("console modes: termios(3)") extern BOOL GetConsoleMode(HANDLE hConsoleHandle, LPDWORD lpMode);
CP_ABSENT("console modes: termios(3)") extern BOOL SetConsoleMode(HANDLE hConsoleHandle, DWORD dwMode);

/* ---- The registry ------------------------------------------------------------------------------------------- */

typedef struct HKEY__ *HKEY, **PHKEY;
typedef ACCESS_MASK REGSAM;
typedef LONG LSTATUS;

#define HKEY_CLASSES_ROOT ((HKEY)(ULONG_PTR)(LONG)0x80000000)
#define HKEY_CURRENT_USER ((HKEY)(ULONG_PTR)(LONG)0x80000001)
#define HKEY_LOCAL_MACHINE ((HKEY)(ULONG_PTR)(LONG)0x80000002)
#define HKEY_USERS ((HKEY)(ULONG_PTR)(LONG)0x80000003)
#define KEY_QUERY_VALUE 0x1
#define KEY_SET_VALUE 0x2
#define KEY_CREATE_SUB_KEY 0x4
#define KEY_ENUMERATE_SUB_KEYS 0x8
#define KEY_NOTIFY 0x10
#define KEY_READ 0x20019
#define KEY_WRITE 0x20006
#define KEY_ALL_ACCESS 0xF003F
#define REG_NONE 0
#define REG_SZ 1
#define REG_EXPAND_SZ 2
#define REG_BINARY 3
#define REG_DWORD 4
#define REG_MULTI_SZ 7
#define REG_QWORD 11

CP_ABSENT("the registry")
extern LSTATUS RegOpenKeyExA(HKEY hKey, LPCSTR lpSubKey, DWORD ulOptions, REGSAM samDesired, PHKEY phkResult);
CP_ABSENT("the registry")
extern LSTATUS RegOpenKeyExW(HKEY hKey, LPCWSTR lpSubKey, DWORD ulOptions, REGSAM samDesired, PHKEY phkResult);
CP_ABSENT("the registry")
extern LSTATUS RegQueryValueExA(HKEY hKey, LPCSTR lpValueName, LPDWORD lpReserved, LPDWORD lpType, LPBYTE lpData,
                                LPDWORD lpcbData);
CP_ABSENT("the registry")
extern LSTATUS RegQueryValueExW(HKEY hKey, LPCWSTR lpValueName, LPDWORD lpReserved, LPDWORD lpType, LPBYTE lpData,
                                LPDWORD lpcbData);
CP_ABSENT("the registry")
extern LSTATUS RegSetValueExA(HKEY hKey, LPCSTR lpValueName, DWORD Reserved, DWORD dwType, const BYTE *lpData,
                              DWORD cbData);
CP_ABSENT("the registry")
extern LSTATUS RegSetValueExW(HKEY hKey, LPCWSTR lpValueName, DWORD Reserved, DWORD dwType, const BYTE *lpData,
                              DWORD cbData);
CP_ABSENT("the registry") extern LSTATUS RegCloseKey(HKEY hKey);

/* ---- Windows and their messages --------------------------------------------------------------------------- */


CP_ABSENT("windows") extern BOOL ShowWindow(HWND hWnd, int nCmdShow);

#ifdef __cplusplus
}
#endif

#if defined UNICODE || defined _UNICODE
#define OpenFileMapping OpenFileMappingW
#define CreateNamedPipe CreateNamedPipeW
#define ReadConsoleInput ReadConsoleInputW
#define RegOpenKeyEx RegOpenKeyExW
#define RegQueryValueEx RegQueryValueExW
#define RegSetValueEx RegSetValueExW
#define GetModuleFileName GetModuleFileNameW
#else
#define OpenFileMapping OpenFileMappingA
#define CreateNamedPipe CreateNamedPipeA
#define ReadConsoleInput ReadConsoleInputA
#define RegOpenKeyEx RegOpenKeyExA
#define RegQueryValueEx RegQueryValueExA
#define RegSetValueEx RegSetValueExA
#define GetModuleFileName GetModuleFileNameA
#endif

#endif
