// SPDX-License-Identifier: GPL-2.0
/*
 * Users: charges sessions to a user and limits their number and their work.
 *
 * The user is who logged in (the login uid of audit, which only the machine's administrator can
 * change once it is set): programs that change their uid, by setuid files or in a user namespace
 * with subordinate uids, stay on the same account. Where nobody logged in (services), it is who
 * made the outermost user namespace that the caller is in, and outside of all namespaces the real
 * uid. So containers that root set up count as root, whatever their uids.
 *
 * Work is charged too. A turn of a session costs its user the time that a worker ran for it, in a
 * window of PWR_WINDOW_NS: up to work_high_percent of one processor goes at high priority, from
 * there to work_percent at the priority of any other process, and what is beyond waits for the next
 * window. Debt is carried over, and an account outlives its sessions until it is paid, so that
 * stopping and starting anew gains nothing.
 *
 * Cost: one spin lock of the user's and one reading of the clock for each turn.
 */
#include <linux/audit.h>
#include <linux/cred.h>
#include <linux/err.h>
#include <linux/kernel.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/user_namespace.h>

#include "session.h"

#define PWR_WINDOW_NS		(100 * NSEC_PER_MSEC)
/* Percents beyond are no limit: more than any machine has processors for. */
#define PWR_PERCENT_MAX		1000000
/* After so many windows every debt is paid: bounds the reckoning. */
#define PWR_WINDOWS_MAX		600
/*
 * What a turn that slept is charged for the time after its last sleep, which the scheduler has not
 * yet added up: 64 packets take less.
 */
#define PWR_TAIL_NS		(500 * NSEC_PER_USEC)

static unsigned int sessions_per_user = 64;
module_param(sessions_per_user, uint, 0644);
MODULE_PARM_DESC(sessions_per_user, "sessions that one user may have (default 64)");

static unsigned int sessions_total = 512;
module_param(sessions_total, uint, 0644);
MODULE_PARM_DESC(sessions_total, "sessions of all users (default 512, and no more than workers)");

static unsigned int sessions;
module_param(sessions, uint, 0444);
MODULE_PARM_DESC(sessions, "sessions at present");

static unsigned int work_high_percent = 25;
module_param(work_high_percent, uint, 0644);
MODULE_PARM_DESC(work_high_percent,
		 "of one processor, for the sessions of one user at high priority (default 25)");

static unsigned int work_percent = 100;
module_param(work_percent, uint, 0644);
MODULE_PARM_DESC(work_percent,
		 "of one processor, for the sessions of one user in all (default 100)");

/**
 * struct pwr_user - the account of one user
 * @listed: among all, under their lock
 * @id: who it is, see the head of this file
 * @sessions: of this user, under the lock of all
 * @lock: of the window
 * @window: when it began
 * @worked_ns: in it, with debt of those before
 * @beyond: has had its share of high priority, as of the last charge
 * @waits_until: nothing is done for this user before
 */
struct pwr_user {
	struct list_head listed;
	kuid_t id;
	unsigned int sessions;
	spinlock_t lock;	/* of the window: workers of several sessions charge it */
	ktime_t window;
	u64 worked_ns;
	bool beyond;
	atomic64_t waits_until;
};

static DEFINE_MUTEX(pwr_users_lock);
static LIST_HEAD(pwr_users);

static kuid_t pwr_user_id(void)
{
	kuid_t login = audit_get_loginuid(current);
	const struct user_namespace *space = current_user_ns();
	kuid_t id = current_uid();

	if (uid_valid(login))
		return login;
	for (; space->parent; space = space->parent)
		id = space->owner;
	return id;
}

static u64 pwr_percent_ns(unsigned int percent)
{
	return clamp(percent, 1U, (unsigned int)PWR_PERCENT_MAX) * (u64)(PWR_WINDOW_NS / 100);
}

/* Whole windows since the last that was reckoned with pay what one allows each. */
static void pwr_user_pay(struct pwr_user *user, ktime_t now)
{
	u64 windows = div_u64(max_t(s64, ktime_sub(now, user->window), 0), PWR_WINDOW_NS);
	u64 paid = min_t(u64, windows, PWR_WINDOWS_MAX) * pwr_percent_ns(READ_ONCE(work_percent));

	if (!windows)
		return;
	user->window = ktime_add_ns(user->window, windows * PWR_WINDOW_NS);
	user->worked_ns -= min(user->worked_ns, paid);
}

/* Accounts with neither sessions nor debt go when the next session begins. */
static struct pwr_user *pwr_user_find(kuid_t id, ktime_t now)
{
	struct pwr_user *user, *next, *found = NULL;

	list_for_each_entry_safe(user, next, &pwr_users, listed) {
		if (uid_eq(user->id, id)) {
			found = user;
			continue;
		}
		if (user->sessions)
			continue;
		pwr_user_pay(user, now);
		if (!user->worked_ns) {
			list_del(&user->listed);
			kfree(user);
		}
	}
	return found;
}

static struct pwr_user *pwr_user_new(kuid_t id, ktime_t now)
{
	struct pwr_user *user = kzalloc(sizeof(*user), GFP_KERNEL);

	if (!user)
		return ERR_PTR(-ENOMEM);
	user->id = id;
	user->window = now;
	spin_lock_init(&user->lock);
	list_add(&user->listed, &pwr_users);
	return user;
}

/**
 * pwr_user_take() - count a session in, for the caller's account and for the machine
 *
 * Return: the account, for pwr_user_put(); -EUSERS when the machine has as many as it may, -EDQUOT
 * when the user has, -ENOMEM.
 */
struct pwr_user *pwr_user_take(void)
{
	unsigned int total = min(READ_ONCE(sessions_total), pwr_pacing_sessions_max());
	kuid_t id = pwr_user_id();
	ktime_t now = ktime_get();
	struct pwr_user *user;

	mutex_lock(&pwr_users_lock);
	user = pwr_user_find(id, now);
	if (sessions >= total)
		user = ERR_PTR(-EUSERS);
	else if ((user ? user->sessions : 0) >= READ_ONCE(sessions_per_user))
		user = ERR_PTR(-EDQUOT);
	else if (!user)
		user = pwr_user_new(id, now);
	if (!IS_ERR(user)) {
		user->sessions++;
		sessions++;
	}
	mutex_unlock(&pwr_users_lock);
	return user;
}

/**
 * pwr_user_put() - a session is no more
 * @user: its account
 */
void pwr_user_put(struct pwr_user *user)
{
	mutex_lock(&pwr_users_lock);
	user->sessions--;
	sessions--;
	mutex_unlock(&pwr_users_lock);
}

/**
 * pwr_user_waits() - until when nothing may be done for a user
 * @user: account
 * @now: present time
 *
 * Return: the time, or 0 when it may be done now.
 */
ktime_t pwr_user_waits(struct pwr_user *user, ktime_t now)
{
	ktime_t until = atomic64_read(&user->waits_until);

	return ktime_compare(until, now) > 0 ? until : 0;
}

/**
 * pwr_user_beyond() - whether what is done next for a user is not done at high priority
 * @user: account
 *
 * Return: that, as of the last charge: a session begun anew gets no more than those that ran on.
 */
bool pwr_user_beyond(const struct pwr_user *user)
{
	return READ_ONCE(user->beyond);
}

/**
 * pwr_turn_begin() - before something is done for a session
 * @turn: what to remember
 * @now: present time
 */
void pwr_turn_begin(struct pwr_turn *turn, ktime_t now)
{
	turn->began = now;
	turn->ran_ns = current->se.sum_exec_runtime;
	turn->switches = current->nvcsw + current->nivcsw;
}

/* Time that this worker ran; what it slept, or others ran meanwhile, is left out. */
static u64 pwr_turn_ns(const struct pwr_turn *turn, ktime_t now)
{
	u64 wall_ns = max_t(s64, ktime_to_ns(ktime_sub(now, turn->began)), 0);

	if (current->nvcsw + current->nivcsw == turn->switches)
		return wall_ns;
	return min(wall_ns, current->se.sum_exec_runtime - turn->ran_ns + PWR_TAIL_NS);
}

/**
 * pwr_user_charge() - after something was done for a session
 * @user: account
 * @turn: from pwr_turn_begin()
 */
void pwr_user_charge(struct pwr_user *user, const struct pwr_turn *turn)
{
	ktime_t now = ktime_get();
	u64 ns = pwr_turn_ns(turn, now);

	spin_lock(&user->lock);
	pwr_user_pay(user, now);
	user->worked_ns += ns;
	WRITE_ONCE(user->beyond,
		   user->worked_ns > pwr_percent_ns(READ_ONCE(work_high_percent)));
	if (user->worked_ns > pwr_percent_ns(READ_ONCE(work_percent)))
		atomic64_set(&user->waits_until, ktime_add_ns(user->window, PWR_WINDOW_NS));
	spin_unlock(&user->lock);
}

/* Runs when the module is unloaded; no user has sessions then. */
void pwr_users_exit(void)
{
	struct pwr_user *user, *next;

	list_for_each_entry_safe(user, next, &pwr_users, listed)
		kfree(user);
}
