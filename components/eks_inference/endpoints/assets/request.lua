-- Reads which model a request asks and how its conversation begins, as its body arrives: other answers flow on meanwhile. It makes nothing
-- of the rest: a tree of a body takes up to a hundred times its size. Exact for every body that servers read: the last `model` at the
-- top counts, as Python, Go and Rust have it. What is no JSON deeper down passes, and the server refuses it.
local ffi = require("ffi")
local byte, char, find, match, sub = string.byte, string.char, string.find, string.match, string.sub

-- Bounds of the work: no API has more keys at the top, longer ones, or any with escapes. Of these values, so many bytes are looked at.
local MOST_KEYS, LONGEST_KEY, MOST_MESSAGES, LONGEST_USAGE = 1000, 256, 100, 1024
local LENGTHS = { model = 1024, messages = 131072, input = 131072, prompt = 256, vllm_xargs = 4096 }
-- By `…_transfer_params` the servers of a pair tell each other where the blocks of a prompt are: a client would read those of others,
-- or end the engine. vLLM 0.30.0 takes them from `vllm_xargs`, too (protocol.py, to_sampling_params; v1/request.py).
local OF_SERVERS = "_transfer_params"
LENGTHS.kv_transfer_params, LENGTHS.ec_transfer_params = 4, 4

-- By state (outside texts; in one; behind a backslash in one) and byte: the next state, and whether it goes deeper. Arrays of C are
-- twice as fast as tables: 2 ms for a MiB, whatever is in it.
local OUTSIDE, TEXT, ESCAPE = 0, 256, 512
local NEXT, DEEPER, COMMA = ffi.new("uint16_t[768]"), ffi.new("int8_t[768]"), ffi.new("int8_t[768]")
for at = TEXT, ESCAPE + 255 do
  NEXT[at] = TEXT
end
NEXT[OUTSIDE + byte('"')], NEXT[TEXT + byte('"')], NEXT[TEXT + byte("\\")] = TEXT, OUTSIDE, ESCAPE
DEEPER[byte("[")], DEEPER[byte("{")], DEEPER[byte("]")], DEEPER[byte("}")] = 1, 1, -1, -1
COMMA[byte(",")] = 1

-- Where the value at `from` ends, the place of the comma or bracket behind it; else what has to be known to go on.
local function ending(text, from, state, depth)
  for at = from, #text do
    local found = state + byte(text, at)
    state, depth = NEXT[found], depth + DEEPER[found]
    if depth - COMMA[found] < 1 then
      return at
    end
  end
  return nil, state, depth
end

-- Whether a client may send the value that begins so: none of those of servers, by name or behind escapes of letters.
local function harmless(key, value)
  if key ~= "vllm_xargs" then
    return not find(key, OF_SERVERS, 1, true) or value == "null"
  end
  local behind = ending(value, 1, OUTSIDE, 1)
  local whole = sub(value, 1, behind or 0)
  return behind and not find(whole, OF_SERVERS, 1, true) and not find(whole, "\\u", 1, true)
end

-- A body of which no more is kept than is looked at: what is left of `text` begins at `at`.
local Body = {}
Body.__index = Body

-- Whether so many bytes are left. Waits for them.
function Body:has(count)
  local left = #self.text - self.at + 1
  local parts = left < count and { sub(self.text, self.at) }
  while left < count do
    local chunk = self.chunks()
    if not chunk then
      break
    end
    parts[#parts + 1] = chunk:getBytes(0, chunk:length())
    left, self.bytes = left + chunk:length(), self.bytes + chunk:length()
  end
  if parts then
    self.text, self.at = table.concat(parts), 1
  end
  return left >= count
end

-- Goes behind what is found here, and the blanks that follow.
function Body:passes(pattern)
  local behind = match(self.text, "^" .. pattern .. "%s*()", self.at)
  self.at = behind or self.at
  while behind and self.at > #self.text and self:has(1) do
    self.at = match(self.text, "^%s*()", self.at)
  end
  return behind
end

-- Goes behind a value.
function Body:skips()
  local found, state, depth = nil, OUTSIDE, 1
  repeat
    found, state, depth = ending(self.text, self.at, state, depth)
    self.at = found or #self.text + 1
  until found or not self:has(1)
  return found
end

-- The beginnings of the values that are asked for by key, of an object; nil if that cannot be told.
function Body:values()
  local values = {}
  self:has(3)
  local more = self:passes("\239?\187?\191?") and self:passes("{")
  for _ = 1, more and MOST_KEYS or 0 do
    self:has(LONGEST_KEY + 2)
    local key, behind = match(self.text, '^"([^"\\]*)"()', self.at)
    self.at = behind or self.at
    if not key or #key > LONGEST_KEY or not (self:passes("") and self:passes(":")) then
      return
    end
    local length = LENGTHS[key]
    if length and (length <= 4096 or not values[key]) then
      self:has(length)
      values[key] = sub(self.text, self.at, self.at + length - 1)
      if not harmless(key, values[key]) then
        return
      end
    end
    if not self:skips() then
      return
    elseif self:passes("}") then
      return not self:has(1) and values
    elseif not self:passes(",") then
      return
    end
  end
end

-- What a JSON text says. What no name has becomes a line feed: control characters, and those that take two escapes.
local function said(quoted)
  return (
    quoted:gsub("\\(.)(%x?%x?%x?%x?)", function(kind, digits)
      local code = kind == "u" and #digits == 4 and tonumber(digits, 16)
      if not code then
        return (find(kind, '["\\/]') and kind or "\n") .. digits
      elseif code < 0x80 or code >= 0xD800 and code < 0xE000 then
        return code < 0x80 and char(code) or "\n"
      end
      local high, low = math.floor(code / 64), 0x80 + code % 64
      return code < 0x800 and char(0xC0 + high, low) or char(0xE0 + math.floor(high / 64), 0x80 + high % 64, low)
    end)
  )
end

local function named(value)
  local behind = value and ending(value, 1, OUTSIDE, 1)
  local quoted = behind and match(sub(value, 1, behind - 1), '^"(.*)"%s*$')
  local name = quoted and said(quoted)
  return name and not find(name, "%c") and name -- Envoy takes what stands before a byte 0
end

-- What a user says first, which the next turn repeats, wherever `role` stands in it; else the beginning of a prompt.
local function beginning(values)
  local value = values.messages or values.input or values.prompt
  local at = value and byte(value) == byte("[") and 2
  for _ = 1, at and MOST_MESSAGES or 0 do
    local behind = ending(value, at, OUTSIDE, 1)
    local message = sub(value, at, (behind or 0) - 1)
    if find(message, '"role"%s*:%s*"user"') then
      -- Clients mark the last message, which is another one in each turn. An image begins as others do.
      -- Patterns begin with a character that is no blank: from each of many blanks, one that begins with `%s*` would look on.
      local seen = sub(message, 1, 2048):gsub(',%s*"cache_control"%s*:%s*%b{}', "")
      return (seen:gsub('"cache_control"%s*:%s*%b{}%s*,?', ""))
    end
    if not behind or byte(value, behind) ~= byte(",") then
      break
    end
    at = behind + 1
  end
  return value and sub(value, 1, 256)
end

function envoy_on_request(request)
  local headers, only = request:headers(), request:filterContext():get("model")
  if only then -- the one model that a route leads to
    request:streamInfo():dynamicMetadata():set("openai", "model", only)
    return
  end
  if not (headers:get(":path") or ""):find("^/v1/") or not (headers:get("content-type") or ""):lower():find("^application/json") then
    return
  end
  local body = setmetatable({ text = "", at = 1, bytes = 0, chunks = request:bodyChunks() }, Body)
  local values = body:values() or {}
  local model = named(values.model)
  local prefix = model and beginning(values)
  local metadata = request:streamInfo():dynamicMetadata()
  if model then
    metadata:set("openai", "model", model)
    metadata:set("openai", "bytes", body.bytes)
    request:clearRouteCache()
  end
  if prefix then
    metadata:set("openai", "prefix", request:base64Escape(prefix))
  end
end

local function tokens(usage, kind)
  return match(usage, '"' .. kind .. '_tokens"%s*:%s*(%d+)')
end

-- How many tokens an answer says that it took, as it flows on; in a stream what it says last counts. Objects that servers repeat from
-- requests come before it, and quotes in texts are escaped.
function envoy_on_response(response)
  local asked = response:streamInfo():dynamicMetadata():get("openai")
  if not (asked and asked.model) then
    return
  end
  local rest = ""
  for chunk in response:bodyChunks() do
    local text = rest .. chunk:getBytes(0, chunk:length())
    local at = find(text, '"usage"', 1, true) and match(text, '^.*()"usage"%s*:%s*{')
    local usage = at and sub(text, at, at + LONGEST_USAGE - 1)
    local prompt = usage and (tokens(usage, "prompt") or tokens(usage, "input"))
    if prompt then
      local metadata = response:streamInfo():dynamicMetadata()
      metadata:set("openai", "prompt_tokens", prompt)
      metadata:set("openai", "generation_tokens", tokens(usage, "completion") or tokens(usage, "output") or "0")
    end
    rest = usage and #usage < LONGEST_USAGE and usage or sub(text, -16)
  end
end
