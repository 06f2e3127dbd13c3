/* For the tests of the hold: the host's own file system in place of the user's. */
#define _GNU_SOURCE
#include "guest.h"

#include <fcntl.h>
#include <stdlib.h>

void __wrap_enter_guest(void);
void __wrap_enter_guest(void)
{
}

int __wrap_open_guest_root(void);
int __wrap_open_guest_root(void)
{
	return open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
}

void __real_exec_shell(const struct passwd *user, const char *command);
void __wrap_exec_shell(const struct passwd *user, const char *command);
/* An interactive shell would run the startup files of this host's root, which may start or wait for anything. */
void __wrap_exec_shell(const struct passwd *user, const char *command)
{
	if (!command)
		setenv("HOME", "/nonexistent", 1);
	__real_exec_shell(user, command);
}

const char *__wrap_task_folder(void);
const char *__wrap_task_folder(void)
{
	return getenv("TASK_FOLDER");
}
