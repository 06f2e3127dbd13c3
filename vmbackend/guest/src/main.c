#include "guest.h"

#include <string.h>

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

static int (*const SERVICE_APPLETS[])(void) = {agent_main, process_main, log_main, workload_main,
						workload_log_main, stop_main};
static const char *const SERVICE_NAMES[] = {"agent", "process", "log", "workload", "workload-log", "stop"};

static int applet_main(int argc, char **argv)
{
	const char *applet = argc > 1 ? argv[1] : "";
	if (!strcmp(applet, "stage") && argc > 2)
		return stage_main(argv[2]);
	if (!strcmp(applet, "run"))
		return run_main(argc - 1, argv + 1);
	if (!strcmp(applet, "attributes") && argc == 4)
		return attributes_main(argv + 2);
	if (!strcmp(applet, "list") && argc == 4)
		return list_main(argv + 2);
	if (!strcmp(applet, "walk") && argc > 3)
		return walk_main(argc - 2, argv + 2);
	if (!strcmp(applet, "locked") && argc > 3)
		return locked_main(argv + 2);
	if (!strcmp(applet, "enter") && argc > 2)
		return enter_main(argv + 2);
	if (!strcmp(applet, "attach") && argc == 5)
		return attach_main(argv + 2);
	if (!strcmp(applet, "hold") && argc == 5)
		return hold_main(argv + 2);
	if (!strcmp(applet, "watch") && argc > 2)
		return watch_main(argv + 2);
	if (!strcmp(applet, "connections") && argc > 2)
		return connections_main(argv[2]);
	if (!strcmp(applet, "ssh") && argc > 2)
		return ssh_main(argv[2]);
	if (!strcmp(applet, "finish") && argc > 4)
		return finish_main(argv[3], argv[4]);
	if (!strcmp(applet, "workload-finish") && argc > 4)
		return workload_finish_main(argv[3], argv[4]);
	if (!strcmp(applet, "workloads") && argc > 2)
		return workloads_main(argc - 2, argv + 2);
	for (size_t i = 0; i < sizeof SERVICE_NAMES / sizeof *SERVICE_NAMES; i++)
		if (!strcmp(applet, SERVICE_NAMES[i]))
			return SERVICE_APPLETS[i]();
	die(EXIT_NOT_FOUND, "no such applet: %s", applet);
}

/* runsv starts `./run` scripts whose first line names us, so the script's own path follows the applet's name. */
int main(int argc, char **argv)
{
	const char *name = base_name(argv[0]);
	if (!strcmp(name, "init"))
		return init_main();
	if (!strcmp(name, "shell") || !strcmp(name, "-shell"))
		return shell_main(argc, argv);
	if (!strcmp(name, "login") || !strcmp(name, "-login"))
		return login_main(argc, argv);
	if (!strcmp(name, "askpass"))
		return argc > 1 ? askpass_main(argv[1]) : 1;
	return applet_main(argc, argv);
}
