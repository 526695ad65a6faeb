// SPDX-License-Identifier: GPL-2.0
/*
 * Users and their accounts: uids of a user namespace, and uids taken after a login, stay on one
 * account; two users have two. And what is charged: a user whose sessions have had their share of
 * work waits, and goes on.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define MS		1000000ull
#define DEVICE		"/dev/pagewire_rtp"
#define USER		1000
#define SUBORDINATE	100000
#define NO_NAMESPACE	254	/* exit status of a child: this kernel lacks what is asked for */

/* A session that lasts, from a descriptor that stays open; the errno of START. */
static int start_one(void)
{
	struct pagewire_rtp_start start = { .send = request_file(0, 1316000, 1316),
					    .interval_ns = 1000 * MS, .wake_packets = 1 };
	int device = open(DEVICE, O_RDWR | O_CLOEXEC);

	if (device < 0)
		return errno;
	return ioctl(device, PAGEWIRE_RTP_START, &start) ? errno : 0;
}

/* Runs @body in a process of its own; its exit status, or -1. */
static int in_child(int (*body)(void))
{
	int status = 0;
	pid_t child = fork();

	if (child < 0)
		fatal("fork");
	if (!child)
		_exit(body());
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Another user from here on, and able to become the next. */
static void become(uid_t user)
{
	if (setresuid(-1, 0, -1) || setresuid(user, user, 0))
		fatal("another user");
}

static int other_namespace(void)
{
	return unshare(CLONE_NEWUSER) ? NO_NAMESPACE : start_one();
}

static int subordinate(void)
{
	if (setresuid(1, 1, 1))
		fatal("uid 1 of the namespace");
	return start_one();
}

/* In a namespace of USER with subordinate uids, mapped by the parent: one session, then more. */
static int namespace_of_user(int ready, int mapped)
{
	char byte = 0;
	int first, second, third;

	if (setresuid(USER, USER, USER) || unshare(CLONE_NEWUSER))
		return NO_NAMESPACE;
	if (write(ready, &byte, 1) != 1 || read(mapped, &byte, 1) != 1)
		return 1;
	first = start_one();
	second = in_child(subordinate);
	third = in_child(other_namespace);
	printf("# its own uid: errno %d, a subordinate's: %d, a namespace below: %d\n", first,
	       second, third);
	return !(first == 0 && second == EDQUOT && third == EDQUOT);
}

static void check_subordinate(void)
{
	int ready[2], mapped[2], status;
	char path[64], map[64], byte = 0;
	pid_t child;

	if (pipe(ready) || pipe(mapped))
		fatal("pipe");
	child = fork();
	if (!child) {
		close(ready[0]);
		close(mapped[1]);
		_exit(namespace_of_user(ready[1], mapped[0]));
	}
	close(ready[1]);
	close(mapped[0]);
	if (read(ready[0], &byte, 1) == 1) {
		/* Who makes a namespace must be in the one around it, by group too. */
		snprintf(path, sizeof(path), "/proc/%d/gid_map", child);
		if (!write_file(path, "0 0 1\n"))
			fatal(path);
		snprintf(path, sizeof(path), "/proc/%d/uid_map", child);
		snprintf(map, sizeof(map), "0 %d 1\n1 %d 100\n", USER, SUBORDINATE);
		if (!write_file(path, map) || write(mapped[1], &byte, 1) != 1)
			fatal(path);
	}
	waitpid(child, &status, 0);
	close(ready[0]);
	close(mapped[1]);
	if (WIFEXITED(status) && WEXITSTATUS(status) == NO_NAMESPACE)
		tap_skip("no user namespaces in this kernel", "subordinate users");
	else
		ok(WIFEXITED(status) && !WEXITSTATUS(status),
		   "subordinate users are on the account of who made their namespace");
}

static int two_users(void)
{
	int first, second;

	become(USER);
	first = start_one();
	become(USER + 1);
	second = start_one();
	return first ? first : second;
}

static int logged_in(void)
{
	char user[16];

	snprintf(user, sizeof(user), "%d", USER + 100);
	if (!write_file("/proc/self/loginuid", user))
		return NO_NAMESPACE;
	return two_users();
}

static void check_login(void)
{
	int number = in_child(two_users);

	ok(!number, "two users have an account each: errno %d", number);
	number = in_child(logged_in);
	if (number == NO_NAMESPACE)
		tap_skip("no login uids (audit) in this kernel", "users of one login");
	else
		ok(number == EDQUOT, "uids taken after a login are on its account: errno %d",
		   number);
}

/* The least interval there is, and one percent of a processor for it. */
static void check_work(void)
{
	struct pagewire_rtp_start start = { .send = request_file(0, 4000 * 1316, 1316),
					    .interval_ns = PAGEWIRE_RTP_INTERVAL_NS_MIN,
					    .wake_packets = 1 };
	struct pollfd wait = { .fd = world.device, .events = POLLIN };
	struct pagewire_rtp_status status;
	uint64_t end = now_ns() + 10000 * MS;

	if (!write_file(PARAMETERS "work_percent", "1")) {
		ok(false, "work for a session has a limit");
		return;
	}
	if (ioctl(world.device, PAGEWIRE_RTP_START, &start))
		fatal("a session");
	do {
		sleep_ns(10 * MS);
		ioctl(world.device, PAGEWIRE_RTP_STATUS, &status);
	} while (!status.retries && status.state == PAGEWIRE_RTP_RUNNING && now_ns() < end);
	ok(status.retries && status.state == PAGEWIRE_RTP_RUNNING && status.packets < 4000,
	   "work beyond a user's share waits: %llu packets sent by then",
	   (unsigned long long)status.packets);
	write_file(PARAMETERS "work_percent", "100");
	poll(&wait, 1, 60000);
	ioctl(world.device, PAGEWIRE_RTP_STATUS, &status);
	ok(status.state == PAGEWIRE_RTP_ENDED && status.packets == 4000,
	   "and is done when there is more: %llu packets", (unsigned long long)status.packets);
	ioctl(world.device, PAGEWIRE_RTP_STOP);
	world_drain(world.receiver);
}

void check_users(void)
{
	char former[16];

	snprintf(former, sizeof(former), "%ld", number_in(PARAMETERS "sessions_per_user", ""));
	if (getpid() != 1 || chmod("/", 0755) || chmod(DEVICE, 0666) ||
	    !write_file(PARAMETERS "sessions_per_user", "1")) {
		tap_skip("needs a machine of its own", "who is charged for sessions");
		return;
	}
	check_subordinate();
	check_login();
	write_file(PARAMETERS "sessions_per_user", former);
	chmod(DEVICE, 0660);
	check_work();
}
