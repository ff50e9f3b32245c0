// What a host function answers: a value, or why there is none. AssemblyScript has no exceptions to carry an error, so
// it is returned. The error is the name of its case in WIT (`not-found`, `capability-denied`); the case `unknown` is
// followed by its text: `unknown: disk full`.

import { takeString } from "./canonical";

@final
export class Result<T> {
  private constructor(
    private readonly held: T,
    readonly error: string | null,
  ) {}

  static ok<T>(value: T): Result<T> {
    return new Result<T>(value, null);
  }

  static failed<T>(error: string): Result<T> {
    if (isReference<T>()) return new Result<T>(changetype<T>(0), error);
    return new Result<T>(<T>0, error);
  }

  get ok(): bool {
    return this.error === null;
  }

  /** The value. A failed result has none: asking for it ends the call with the error as its message. */
  get value(): T {
    const error = this.error;
    assert(error === null, "the result has no value, it failed: " + (error === null ? "" : error));
    return this.held;
  }

  /** The value, or `fallback` when there is none. */
  or(fallback: T): T {
    return this.ok ? this.held : fallback;
  }
}

/** Takes the error variant at `place`. `cases` are its cases in the order of WIT; the last one carries a text. */
export function takeError(place: usize, cases: StaticArray<string>): string {
  const index = <i32>load<u8>(place);
  const name = cases[index];
  if (index < cases.length - 1) return name;
  return name + ": " + takeString(place + sizeof<usize>());
}
