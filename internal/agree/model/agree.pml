/*
 * The agreement of docs/design/membership.md: N ranks and a newcomer, EPOCHS
 * transitions from one epoch to the next. See check.sh for the variants.
 *
 * The model allows as many faults as possible: a rank may crash at any step, may
 * take any other rank for lost, may lose the store's answer and repeat the
 * request, and may fail to form an epoch.
 */
#ifndef N
#define N 3
#endif
#ifndef EPOCHS
#define EPOCHS 2
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef RETRIES
#define RETRIES 0
#endif
#ifndef WORKING
#define WORKING EPOCHS          /* epochs in which there is an operation */
#endif

#ifdef GROW
#define PROCESSES (N + 1)
#else
#define PROCESSES N
#endif
#define FULL ((1 << N) - 1)
#define NEW (1 << N)            /* the newcomer's bit */
#define bit(r) (1 << (r))
#define has(m, r) (((m) >> (r)) & 1)
#define at(e, r) ((e) * (N + 1) + (r))

/* The store. next is 0 while there is no successor. */
byte here[EPOCHS + 1];
byte next[EPOCHS + 1];
byte number[EPOCHS + 1];
byte said[(EPOCHS + 1) * (N + 1)];

/* The ranks. */
byte members[EPOCHS + 1];                /* of each epoch, as the first rank to enter it saw them */
byte arrived[EPOCHS + 1];                /* the ranks that are ready to form it */
byte called[EPOCHS + 1];                 /* the ranks that have called the operation */
byte met[EPOCHS + 1];                    /* the ranks that have called Grow, the second operation */
byte completed[(EPOCHS + 1) * (N + 1)];  /* by rank: the last operation that it has completed */
byte known[EPOCHS + 1];                  /* the number, as the first rank saw it */
byte over;                               /* processes that have ended */
byte crashes;
byte retries;
bool shrunk[EPOCHS + 1];                 /* next was proposed by Shrink */
bool left_behind;

#ifdef ACCURATE
#define MAYCRASH skip
#else
#define MAYCRASH if :: true :: crashes < CRASHES -> crashes++; goto end fi
#endif

/* choose the ranks that this rank takes for lost: any but itself */
inline suspect() {
	lost = 0;
	i = 0;
	do
	:: i > N -> break
	:: i <= N && i != me && has(mine, i) ->
#ifndef ACCURATE
		if :: lost = lost | bit(i) :: skip fi;
#endif
		i++
	:: else -> i++
	od
}

/* set low to the minimum number of the ranks in m */
inline least(m) {
	low = 2;
	i = 0;
	do
	:: i > N -> break
	:: i <= N ->
		if :: has(m, i) && said[at(e, i)] < low -> low = said[at(e, i)] :: else fi;
		i++
	od
}

/* check a successor: all ranks that follow it must see the same one */
inline obey() {
	assert(members[e + 1] == 0 || (members[e + 1] == got && known[e + 1] == gotnumber));
	members[e + 1] = got;
	known[e + 1] = gotnumber;
}

proctype rank(byte me) {
	byte e, mine, lost, i, low, plan, got, gotnumber;
	e = 0;
	mine = FULL;
	if
	:: me == N -> goto newcomer
	:: else
	fi;

work:	/* one operation in this epoch, which may fail at any time */
	if
	:: e < WORKING -> atomic { MAYCRASH; called[e] = called[e] | bit(me) };
		if
		:: atomic { (called[e] & mine) == mine -> completed[at(e, me)] = 1 }
		:: goto shrink                      /* poisoned, or out of patience */
		fi;
#ifdef GROW
		if
		:: e < EPOCHS && !(mine & NEW) -> goto grow
		:: skip
		fi
#else
		skip
#endif
	:: skip
	fi;

shrink:
	if :: e == EPOCHS -> goto end :: else fi;
	/* freeze: nothing is completed after this line; announce */
	atomic { MAYCRASH; here[e] = here[e] | bit(me); said[at(e, me)] = completed[at(e, me)] };
#ifdef NOFREEZE
	if
	:: atomic { has(called[e], me) && (called[e] & mine) == mine -> completed[at(e, me)] = 1 }
	:: skip
	fi;
#endif
again:
	if
	:: atomic { next[e] != 0 -> got = next[e]; gotnumber = number[e] }
	:: atomic {
#ifdef ACCURATE
		/* it proposes when all members have announced */
		(here[e] & mine) == mine;
#endif
		suspect(); plan = here[e] & mine & ~lost; least(plan); lost = 0; i = 0 };
		atomic {
			MAYCRASH;
#ifdef PLAINSET
			next[e] = plan; number[e] = low; shrunk[e] = true;
#else
			if :: next[e] == 0 -> next[e] = plan; number[e] = low; shrunk[e] = true :: else fi;
#endif
#ifdef OWNPLAN
			got = plan; gotnumber = low;
#else
			got = next[e]; gotnumber = number[e];
#endif
			plan = 0; low = 0
		};
#ifndef ACCURATE
		/* the answer may be lost */
		if :: skip :: retries < RETRIES -> retries++; goto again fi
#endif
	fi;
	goto decided;

#ifdef GROW
grow:	/* a barrier, which is an operation; then the first rank proposes, and the others wait */
	atomic { met[e] = met[e] | bit(me) };
	if
	:: atomic { (met[e] & mine) == mine -> completed[at(e, me)] = 2; MAYCRASH }
	:: goto shrink
	fi;
	if
	:: has(mine, me) && (mine & (bit(me) - 1)) == 0 ->
		atomic {
			if :: next[e] == 0 ->
				next[e] = mine | NEW;
#ifdef GROWNUMBER
				number[e] = 2
#else
				number[e] = 1
#endif
			:: else fi;
			got = next[e]; gotnumber = number[e]
		}
	:: !(has(mine, me) && (mine & (bit(me) - 1)) == 0) ->
		if
		:: atomic { next[e] != 0 -> got = next[e]; gotnumber = number[e] }
		:: goto shrink                              /* notified that a rank is lost */
		fi
	fi;
	goto decided;
#endif

newcomer:
	mine = 0;
	do
	:: e == EPOCHS -> goto end
	:: atomic { e < EPOCHS && next[e] != 0 ->
		if :: has(next[e], me) -> got = next[e]; gotnumber = number[e]; goto decided :: else -> e++ fi }
	:: timeout -> goto end
	:: crashes < CRASHES -> crashes++; goto end
	od;

decided:
	atomic {
		obey();
		if
		:: !has(got, me) -> left_behind = true; goto end   /* ErrExcluded */
		:: else
		fi;
		e++;
		mine = got;
		got = 0; gotnumber = 0;
		MAYCRASH;
		arrived[e] = arrived[e] | bit(me)
	};
	if
	:: (arrived[e] & mine) == mine -> goto work
#ifndef ACCURATE
	:: goto shrink                                  /* it could not be formed */
#endif
	fi;
end:	atomic { over++; e = 0; mine = 0; lost = 0; i = 0; low = 0; plan = 0; got = 0; gotnumber = 0 }
}

/* When all processes have ended, every number must be correct for every member of its epoch. */
proctype judge() {
	byte e, r, low, done;
	over == PROCESSES;
	e = 0;
	do
	:: e == EPOCHS -> break
	:: e < EPOCHS ->
		if
		:: members[e + 1] != 0 ->
			low = 2;
			r = 0;
			do
			:: r > N -> break
			:: r <= N ->
				if
				:: has(members[e + 1], r) && (r < N || has(members[e], N)) ->
					done = completed[at(e, r)];
					assert(known[e + 1] <= done);
					if :: done < low -> low = done :: else fi
				:: else
				fi;
				r++
			od;
			/* and it is the maximum of the correct numbers */
			if :: shrunk[e] -> assert(known[e + 1] == low) :: else fi
		:: else
		fi;
		e++
	od;
#ifdef ACCURATE
	assert(!left_behind);
	assert(next[0] == FULL);
#endif
}

init {
	byte r = 0;
	members[0] = FULL;
	atomic {
		do
		:: r == N -> break
		:: r < N -> run rank(r); r++
		od;
#ifdef GROW
		run rank(N);
#endif
		run judge()
	}
}
