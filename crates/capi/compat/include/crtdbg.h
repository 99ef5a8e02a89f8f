/* crtdbg.h: claims that are checked in debug builds, those with _DEBUG. */
#ifndef CP_CRTDBG_H
#define CP_CRTDBG_H

#include <windows.h>

#endif
