/* runsv's finish scripts: what follows the end of a program. CODE is -1 after a signal, whose number is STATUS. */
#define _GNU_SOURCE
#include "guest.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ENTRYPOINT_DELAY_MS 5000
#define READY_POLL_MS 10

/* The host must see READY before the exit line, also where the program ends before READY was sent. */
static void wait_for_ready(void)
{
	long long until = now_ms() + SERVICES_WAIT_MS + INIT_WAIT_MS;
	while (access(READY_FILE, F_OK) && now_ms() < until)
		sleep_ms(READY_POLL_MS);
}

int finish_main(const char *code, const char *status)
{
	char line[64];
	int exit_code = atoi(code), ended_by = atoi(status);
	config_load(CONFIG_FILE);
	if (!*config_get("cmd")) {
		if (exit_code == 0)
			control_service("main", "d");
		else
			sleep_ms(ENTRYPOINT_DELAY_MS); /* before runsv starts the image's service again */
		return 0;
	}
	if (exit_code >= 0)
		ended_by = 0;
	snprintf(line, sizeof line, "exit %d %d\n", exit_code < 0 ? 128 + ended_by : exit_code, ended_by);
	wait_for_ready();
	send_event(line);
	kill(1, SIGUSR2);
	return 0;
}

static void write_number(const char *file, long number)
{
	char text[32];
	snprintf(text, sizeof text, "%ld", number);
	write_file(file, text, strlen(text), 0600);
}

/* Counts the start that follows, if it is within the limit. */
static bool may_restart(long limit)
{
	char *old = read_file(RESTARTS_FILE, NULL);
	long restarts = old ? atol(old) : 0;
	free(old);
	if (limit && restarts >= limit)
		return false;
	write_number(RESTARTS_FILE, restarts + 1);
	return true;
}

int workload_finish_main(const char *code, const char *status)
{
	char service[SERVICE_NAME_SIZE];
	const char *name = workload_name(false);
	int exit_code = atoi(code);
	unlink(WAITING_FILE); /* of one that was killed */
	write_number(EXIT_FILE, exit_code < 0 ? 128 + atoi(status) : exit_code);
	if (!access(STOPPED_FILE, F_OK))
		return 0;
	config_load(CONFIG_FILE);
	const char *policy = workload_get(name, "restart", "never");
	bool again = !strcmp(policy, "always") || (!strcmp(policy, "on-failure") && exit_code != 0);
	if (!again || !may_restart(atol(workload_get(name, "max_restarts", "0")))) {
		snprintf(service, sizeof service, WORKLOAD_PREFIX "%s", name);
		control_service(service, "d");
		return 0;
	}
	write_file(WAITING_FILE, "", 0, 0600);
	sleep_ms(atol(workload_get(name, "restart_delay", "1")) * 1000);
	unlink(WAITING_FILE);
	return 0;
}
