-- Shared by the scripts that take a lock or a segment: the line of the processes that wait for it, and whose turn it is.
-- A line is a zset with PX: a waiting process -> server us at which it began to wait. While processes wait, the field
-- `line` of the hash `notes` is "<turns of others> <since ms> <left to the first until ms, or 0> <bounds>". The bounds are
-- "<newcomers_max> <waiters_max> <passed_ms> <left_ms> <line_ttl_ms>" of the first process that came. newcomers_max,
-- waiters_max: turns of others before it is left to the first of the line; passed_ms: as much time at most; left_ms: for
-- how long; line_ttl_ms: after which a line is forgotten to which no process comes.
-- `asked` is "<bounds> <party>" of a process that waits; with "*" before the party if it has not waited yet, and keeps a
-- place if it is not let through; "*" alone of one that keeps none; and "" of a caller that will not wait: it takes what
-- is free also if others wait.
-- Messages on the channel `freed`: "turn:<process>", which should try now; "first:<process> <ms>", which is the first now,
-- and should try at the next release, or after that time; "taken:", what was free is taken, so that those behind need not
-- try; "turn:*", the line was forgotten because its first has not come: all processes that wait should ask again.
local open_line, keep_place, left_to_first, wait_behind, tell_following, pass_turn

do -- for Lua allows 200 local variables at once
  function open_line(key, notes, freed, asked)
    local bounds, mark, party = string.match(asked, '^(%d+ %d+ %d+ %d+ %d+) (%*?)(.+)$')
    return { key = key, notes = notes, freed = freed, bounds = bounds, party = party, will_wait = asked ~= '',
      is_newcomer = mark == '*' or asked == '*' }
  end

  local function write_turns(line, turns, since_ms, until_ms)
    redis.call('HSET', line.notes, 'line', string.format('%.0f %.0f %.0f %s', turns, since_ms, until_ms, line.bounds))
  end

  -- End the turn of the caller's process, which is the first.
  local function end_turn(line, following, now_ms)
    redis.call('ZREM', line.key, line.party)
    if following then
      write_turns(line, 0, now_ms, 0)
      line.following = following
    else
      redis.call('HDEL', line.notes, 'line')
    end
  end

  -- Keep the place of the caller's process, which waits; return how many are ahead, 0 if the key has another type. All
  -- that it could take `is_taken`, or is left to the first.
  function keep_place(line, noted, at_us, is_taken)
    local added = redis.pcall('ZADD', line.key, 'NX', string.format('%.0f', at_us), line.party)
    if type(added) == 'table' then
      return 0
    end
    redis.call('PEXPIRE', line.key, string.match(line.bounds, '%d+$'))
    if not noted then
      write_turns(line, 0, math.floor(at_us / 1000), 0)
    end
    local ahead = redis.call('ZRANK', line.key, line.party)
    if is_taken and added == 0 and ahead == 1 then -- it asked again, most likely after a release that another one took
      redis.pcall('PUBLISH', line.freed, 'taken:')
    end
    return ahead
  end

  -- Return the places of the line that are ahead of the caller's process.
  local function count_ahead(line)
    return line.party and redis.call('ZRANK', line.key, line.party) or redis.call('ZCARD', line.key)
  end

  -- Return for how many ms what is free is left to the first of the line; nil if the caller may take it. `noted` is the
  -- field `line`; the line is for `count` locks, of which `free_count` are free. Newcomers have their turns at each of
  -- these.
  function left_to_first(line, noted, at_us, count, free_count)
    if not (noted and line.will_wait) then
      return nil
    end
    local turns, since_ms, until_ms, bounds = string.match(noted, '^(%d+) (%d+) (%d+) (%d+ %d+ %d+ %d+ %d+)$')
    local found, now_ms = turns and redis.pcall('ZRANGE', line.key, 0, 2) or {}, math.floor(at_us / 1000)
    local first, following = found[1], found[2]
    turns, since_ms, until_ms = tonumber(turns), tonumber(since_ms), tonumber(until_ms)
    -- the first has not come: others may be gone, too, and must not cost as much each. If all were asked within the last
    -- second, it is slow, and another one is the first now.
    if first and until_ms > 0 and until_ms <= now_ms then
      local called_ms = tonumber(redis.call('HGET', line.notes, 'called') or '0') or 0
      if now_ms >= called_ms and now_ms < called_ms + 1000 then
        redis.call('ZREM', line.key, first)
        turns, since_ms, until_ms, first, following = 0, now_ms, 0, following, found[3]
      else
        redis.call('DEL', line.key)
        if following then
          redis.call('HSET', line.notes, 'called', string.format('%.0f', now_ms))
          redis.pcall('PUBLISH', line.freed, 'turn:*')
        end
        first = nil
      end
    end
    if not first then -- nobody waits, or the key has another type
      redis.call('HDEL', line.notes, 'line')
      return nil
    end
    line.bounds = bounds
    if first == line.party then -- its turn
      end_turn(line, following, now_ms)
      return nil
    end
    local newcomers_max, waiters_max, passed_ms, left_ms = string.match(bounds, '^(%d+) (%d+) (%d+) (%d+)')
    local turns_max = tonumber(waiters_max)
    if line.is_newcomer then
      turns_max = math.min(turns_max, tonumber(newcomers_max) * count)
    end
    local is_enough = free_count > 1 and count_ahead(line) < free_count -- also for those ahead
    if is_enough or until_ms == 0 and turns < turns_max and now_ms < since_ms + tonumber(passed_ms) then
      if not is_enough then
        write_turns(line, turns + 1, since_ms, 0)
      end
      if line.party then
        redis.call('ZREM', line.key, line.party)
      end
      return nil
    end
    if until_ms == 0 then
      until_ms = now_ms + tonumber(left_ms)
      write_turns(line, turns, since_ms, until_ms)
      redis.pcall('PUBLISH', line.freed, 'turn:' .. first)
    end
    return until_ms - now_ms
  end

  -- For a caller that was not let through: return its answer's free_in_ms and, if it waits, how many are ahead. Should those
  -- ahead have died, the processes behind come one after the other, within 10 ms (`plans.line.stagger`).
  function wait_behind(line, noted, at_us, left)
    if not line.party then
      return left
    end
    local ahead = keep_place(line, noted, at_us)
    return left + math.min(4 * math.max(0, ahead - 1), 10), ahead
  end

  -- After its turn, tell the next process that it is the first now; something may be free in `free_in_ms`.
  function tell_following(line, free_in_ms)
    if line.following then
      redis.pcall('PUBLISH', line.freed, free_in_ms == 0 and 'turn:' .. line.following
        or 'first:' .. line.following .. ' ' .. string.format('%.0f', free_in_ms))
    end
  end

  -- For a caller that is refused for good, or waits no more: if its process is the first, the next one is that now.
  function pass_turn(line, noted, at_us, free_in_ms)
    if not line.party then
      return
    end
    local found = redis.pcall('ZRANGE', line.key, 0, 1)
    line.bounds = string.match(noted or '', '^%d+ %d+ %d+ (%d+ %d+ %d+ %d+ %d+)$')
    if line.bounds and found[1] == line.party then
      end_turn(line, found[2], math.floor(at_us / 1000))
      tell_following(line, free_in_ms)
    end
  end
end
