/* Power-off: the power button, and the order of the steps. */
#define _GNU_SOURCE
#include "guest.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAIN_GRACE_SECONDS 5 /* of a configuration that names none */
#define REST_GRACE_MS 1000
#define LOGS_GRACE_MS 3000
#define POLL_MS 10

struct input_event { /* linux/input.h, 64 bit */
	int64_t seconds, microseconds;
	uint16_t type, code;
	int32_t value;
};

/* Kernel threads have no executable, and neither has a zombie. */
static bool processes_left(void)
{
	DIR *processes = opendir("/proc");
	struct dirent *entry;
	char path[300], target[8];
	bool found = false;
	while (processes && !found && (entry = readdir(processes))) {
		int pid = atoi(entry->d_name);
		snprintf(path, sizeof path, "/proc/%d/exe", pid);
		found = pid > 1 && pid != getpid() && readlink(path, target, sizeof target) > 0;
	}
	if (processes)
		closedir(processes);
	return found;
}

/* What does not end in its time is named in the boot log, as the stop of the machine has waited for it. */
static void wait_while(bool (*condition)(void), long long limit_ms, const char *what)
{
	long long until = now_ms() + limit_ms;
	while (condition()) {
		if (now_ms() >= until) {
			log_boot("%s not ended after %lld s", what, limit_ms / 1000);
			return;
		}
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		sleep_ms(POLL_MS);
	}
}

static long long main_grace_ms(void)
{
	const char *seconds = config_get("stop_grace");
	return 1000LL * (*seconds ? atol(seconds) : MAIN_GRACE_SECONDS);
}

void end_machine(int how)
{
	log_boot("powering off");
	programs_stop();
	wait_while(programs_run, main_grace_ms(), "programs have");
	kill(-1, SIGTERM);
	kill(-1, SIGCONT);
	wait_while(processes_left, REST_GRACE_MS, "other processes have");
	wait_while(logs_run, LOGS_GRACE_MS, "logs have"); /* at most one pipe of output; longer only while a living process has it open */
	kill(-1, SIGKILL);
	wait_while(processes_left, REST_GRACE_MS, "killed processes have");
	mark_ended();
	sync();
	/* Read-only file systems need no recovery at the next start; where remounting fails the journal provides it. */
	mount(NULL, NEWROOT, NULL, MS_REMOUNT | MS_RDONLY, NULL);
	mount(NULL, KIT "/data", NULL, MS_REMOUNT | MS_RDONLY, NULL);
	sync();
	reboot(how);
	for (;;)
		pause();
}

int open_buttons(struct pollfd *buttons, int capacity)
{
	DIR *inputs = opendir("/sys/class/input");
	struct dirent *entry;
	int count = 0;
	while (inputs && count < capacity && (entry = readdir(inputs))) {
		char path[300];
		if (strncmp(entry->d_name, "event", 5) || make_node("/sys/class/input", entry->d_name, S_IFCHR))
			continue;
		snprintf(path, sizeof path, "/dev/%s", entry->d_name);
		int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
		if (fd >= 0)
			buttons[count++] = (struct pollfd){.fd = fd, .events = POLLIN};
	}
	if (inputs)
		closedir(inputs);
	return count;
}

bool power_pressed(int fd)
{
	struct input_event event;
	bool pressed = false;
	while (read(fd, &event, sizeof event) == sizeof event)
		pressed = pressed || (event.type == 1 && event.code == 116 && event.value == 1); /* EV_KEY KEY_POWER */
	return pressed;
}
