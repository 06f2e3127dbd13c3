#ifndef WORKLOAD_STATES_H
#define WORKLOAD_STATES_H

#define WORKLOAD_SETTLE_MS 500 /* for a finish script that has just started */
#define WORKLOAD_POLL_MS 20

void workload_settle(const char *service, long long until); /* waits until it is known how its program ended */
int list_workloads(void);
int list_usage(void);

#endif
