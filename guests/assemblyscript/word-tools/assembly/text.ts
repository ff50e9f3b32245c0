// Text by Unicode code points. A string of AssemblyScript is UTF-16, so a code point has one unit or two.

@final
export class TextCount {
  words: i32 = 0;
  characters: i32 = 0;
  lines: i32 = 0;
}

/** Words are what stands between white space; lines are newlines and one more, and none in an empty text. */
export function countText(text: string): TextCount {
  const count = new TextCount();
  let inWord = false;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    // The second half of a pair continues a character; no white space has two units.
    if (isLowSurrogate(unit)) continue;
    count.characters++;
    if (unit == 0x0a) count.lines++;
    const isSpace = isWhiteSpace(unit);
    if (!isSpace && !inWord) count.words++;
    inWord = !isSpace;
  }
  if (text.length > 0) count.lines++;
  return count;
}

/** The code points in reverse order. */
export function reverseText(text: string): string {
  const size = (<usize>text.length) << 1;
  const source = changetype<usize>(text);
  const reversed = changetype<string>(__new(size, idof<string>()));
  let to = changetype<usize>(reversed) + size;
  for (let i: usize = 0; i < size;) {
    const isPair = isHighSurrogate(load<u16>(source + i));
    const width: usize = isPair ? 4 : 2;
    to -= width;
    memory.copy(to, source + i, width);
    i += width;
  }
  return reversed;
}

function isHighSurrogate(unit: i32): bool {
  return (unit & 0xfc00) == 0xd800;
}

function isLowSurrogate(unit: i32): bool {
  return (unit & 0xfc00) == 0xdc00;
}

/** Unicode's property White_Space. */
function isWhiteSpace(unit: i32): bool {
  if (unit <= 0x20) return unit == 0x20 || (unit >= 0x09 && unit <= 0x0d);
  if (unit < 0x1680) return unit == 0x85 || unit == 0xa0;
  if (unit >= 0x2000 && unit <= 0x200a) return true;
  return unit == 0x1680 || unit == 0x2028 || unit == 0x2029 || unit == 0x202f || unit == 0x205f || unit == 0x3000;
}
