-- follow: a write that says nothing, since WAIT asks whether the last write of a connection has arrived.

even_when_full()
call('HSET', space, 'followed', format(DIGITS, now))
return { now }
