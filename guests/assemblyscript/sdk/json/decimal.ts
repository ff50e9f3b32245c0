// The 64-bit float nearest to a decimal number, exactly. The standard library's `parseFloat` is off by the last bit now
// and then, and a value that was written must be the value that is read.

// The powers of ten up to this one are floats without error, and so are whole numbers up to 2^53: one multiplication
// or division of two such is rounded right.
const EXACT_POWER: i32 = 22;

// More digits than this cannot lie between two neighbouring midpoints of floats; of the rest it only matters whether
// there is a digit other than 0.
const MAX_DIGITS: i32 = 800;

const MAX_BITS: u64 = 0x7fef_ffff_ffff_ffff;

/** The nearest float; of two equally near the even one. Infinite beyond the largest. `text` is a number of JSON. */
export function nearestFloat(text: string): f64 {
  const decimal = new Decimal(text);
  const magnitude = decimal.nearest();
  return decimal.isNegative ? -magnitude : magnitude;
}

/** digits × 10^exponent. */
@final
class Decimal {
  readonly isNegative: bool;
  /** Without zeros before; empty for zero. */
  private readonly digits: u8[] = [];
  private exponent: i32 = 0;
  private readonly whole: Natural = new Natural();

  constructor(private readonly text: string) {
    this.isNegative = text.charCodeAt(0) == 0x2d;
    this.read();
  }

  nearest(): f64 {
    const count = this.digits.length;
    if (count == 0 || count + this.exponent < -330) return 0;
    if (count + this.exponent > 310) return Infinity;
    if (count <= 15 && abs(this.exponent) <= EXACT_POWER) return this.exactly();
    for (let i = 0; i < count; i++) this.whole.multiplyAdd(10, this.digits[i]);
    if (this.exponent > 0) this.whole.scale(this.exponent);
    return this.search();
  }

  private read(): void {
    let isFraction = false;
    let isCut = false;
    for (let i = i32(this.isNegative); i < this.text.length; i++) {
      const unit = this.text.charCodeAt(i);
      if (unit == 0x2e) {
        isFraction = true;
      } else if (unit < 0x30 || unit > 0x39) {
        this.exponent += boundedInteger(this.text, i + 1);
        break;
      } else {
        if (isFraction) this.exponent--;
        if (this.digits.length == MAX_DIGITS) {
          this.exponent++;
          isCut = isCut || unit != 0x30;
        } else if (unit != 0x30 || this.digits.length > 0) {
          this.digits.push(<u8>(unit - 0x30));
        }
      }
    }
    if (isCut) {
      this.digits.push(1);
      this.exponent--;
    }
  }

  private exactly(): f64 {
    let value: u64 = 0;
    for (let i = 0; i < this.digits.length; i++) value = value * 10 + this.digits[i];
    let power: f64 = 1;
    for (let i = 0; i < abs(this.exponent); i++) power *= 10;
    return this.exponent < 0 ? <f64>value / power : <f64>value * power;
  }

  /** The bits of positive floats count up as the floats do, so the largest float that is not too large is found. */
  private search(): f64 {
    let low: u64 = 0;
    let high = MAX_BITS;
    // `parseFloat` is never far off, so the search begins beside it; it would end at the same float without.
    const near = reinterpret<u64>(Math.abs(F64.parseFloat(this.text)));
    if (near > 8 && near < MAX_BITS - 8) {
      if (this.isAtLeast(near - 8)) low = near - 8;
      if (!this.isAtLeast(near + 8)) high = near + 7;
    }
    while (low < high) {
      const middle = low + ((high - low + 1) >> 1);
      if (this.isAtLeast(middle)) low = middle;
      else high = middle - 1;
    }
    const half = this.compare(2 * significand(low) + 1, power(low) - 1);
    const isUp = half > 0 || (half == 0 && (low & 1) == 1);
    // One above the largest float are the bits of infinity.
    return reinterpret<f64>(low + u64(isUp));
  }

  private isAtLeast(bits: u64): bool {
    return this.compare(significand(bits), power(bits)) >= 0;
  }

  /** Whether the number is less than significand × 2^power (-1), equal (0) or more (1). */
  private compare(significand: u64, power: i32): i32 {
    const other = new Natural();
    other.multiplyAdd(1, <u32>(significand >> 32));
    other.shift(32);
    other.multiplyAdd(1, <u32>significand);
    if (this.exponent < 0) other.scale(-this.exponent);
    if (power >= 0) {
      other.shift(power);
      return this.whole.compare(other);
    }
    const shifted = this.whole.copy();
    shifted.shift(-power);
    return shifted.compare(other);
  }
}

/** A natural number of any size, in limbs of 32 bits, the lowest first. */
@final
class Natural {
  private limbs: u32[] = [];

  copy(): Natural {
    const copied = new Natural();
    copied.limbs = this.limbs.slice();
    return copied;
  }

  multiplyAdd(factor: u32, summand: u32): void {
    let carry: u64 = summand;
    for (let i = 0; i < this.limbs.length; i++) {
      carry += <u64>this.limbs[i] * factor;
      this.limbs[i] = <u32>carry;
      carry >>= 32;
    }
    if (carry != 0) this.limbs.push(<u32>carry);
  }

  /** Multiplies by a power of ten. */
  scale(power: i32): void {
    for (; power >= 9; power -= 9) this.multiplyAdd(1_000_000_000, 0);
    for (; power > 0; power--) this.multiplyAdd(10, 0);
  }

  /** Multiplies by a power of two. */
  shift(power: i32): void {
    this.multiplyAdd(1 << (power & 31), 0);
    if (this.limbs.length == 0) return;
    const zeros = new Array<u32>(power >> 5);
    this.limbs = zeros.concat(this.limbs);
  }

  compare(other: Natural): i32 {
    const length = this.limbs.length;
    if (length != other.limbs.length) return length < other.limbs.length ? -1 : 1;
    for (let i = length - 1; i >= 0; i--) {
      if (this.limbs[i] != other.limbs[i]) return this.limbs[i] < other.limbs[i] ? -1 : 1;
    }
    return 0;
  }
}

/** The whole number that makes a positive float when multiplied by 2^power(bits). */
function significand(bits: u64): u64 {
  const fraction = bits & 0xf_ffff_ffff_ffff;
  return bits >> 52 == 0 ? fraction : fraction | (1 << 52);
}

function power(bits: u64): i32 {
  return max(<i32>(bits >> 52), 1) - 1075;
}

/** The signed digits from `start` to the end; beyond a hundred million it is all the same. */
function boundedInteger(text: string, start: i32): i32 {
  const sign = text.charCodeAt(start);
  let value = 0;
  for (let i = sign == 0x2b || sign == 0x2d ? start + 1 : start; i < text.length; i++) {
    if (value < 100_000_000) value = value * 10 + (text.charCodeAt(i) - 0x30);
  }
  return sign == 0x2d ? -value : value;
}
