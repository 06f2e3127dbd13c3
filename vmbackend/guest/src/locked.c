/* `guest locked FOLDER COMMAND...`: runs a command while it has a folder's lock (flock), which ends with the command.
 * So the platform's processes replace the files of a folder one after another.
 */
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define WAIT_MS 10000 /* a program of the user may have the lock */
#define EXIT_LOCKED 5
#define PAUSE_US 5000

int locked_main(char **argv)
{
	long long until = now_ms() + WAIT_MS;
	int folder = open(argv[0], O_RDONLY | O_DIRECTORY);
	if (folder < 0)
		die(EXIT_CANNOT_RUN, "cannot open the folder: %s", strerror(errno));
	while (flock(folder, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK || now_ms() > until)
			die(errno == EWOULDBLOCK ? EXIT_LOCKED : EXIT_CANNOT_RUN, "cannot lock the folder: %s", strerror(errno));
		usleep(PAUSE_US);
	}
	execv(argv[1], argv + 1);
	die(EXIT_NOT_FOUND, "cannot run %s: %s", argv[1], strerror(errno));
}
