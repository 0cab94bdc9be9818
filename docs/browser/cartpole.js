// CartPole-v1 as Gymnasium has it: the same equations, Euler steps and ends (Barto, Sutton and Anderson 1983).

const GRAVITY = 9.8;
const POLE_MASS = 0.1;
const TOTAL_MASS = 1.0 + POLE_MASS;
const HALF_LENGTH = 0.5; // metres
const POLE_MOMENT = POLE_MASS * HALF_LENGTH;
const FORCE = 10.0; // newtons
const SECONDS = 0.02; // of one step
const LARGEST_ANGLE = (12 * 2 * Math.PI) / 360;

export const LARGEST_POSITION = 2.4;
export const POLE_LENGTH = 2 * HALF_LENGTH;
export const LONGEST_EPISODE = 500;

/** A state [position, velocity, angle, angular velocity] at the start of an episode. */
export function startState() {
  return Array.from({ length: 4 }, () => 0.1 * Math.random() - 0.05);
}

/** The state after pushing the cart to the left (action 0) or to the right (action 1). */
export function nextState([position, velocity, angle, angularVelocity], action) {
  const force = action === 1 ? FORCE : -FORCE;
  const cosine = Math.cos(angle);
  const sine = Math.sin(angle);
  const pushed = (force + POLE_MOMENT * angularVelocity * angularVelocity * sine) / TOTAL_MASS;
  const angularAcceleration =
    (GRAVITY * sine - cosine * pushed) / (HALF_LENGTH * (4.0 / 3.0 - (POLE_MASS * cosine * cosine) / TOTAL_MASS));
  const acceleration = pushed - (POLE_MOMENT * angularAcceleration * cosine) / TOTAL_MASS;
  return [
    position + SECONDS * velocity,
    velocity + SECONDS * acceleration,
    angle + SECONDS * angularVelocity,
    angularVelocity + SECONDS * angularAcceleration,
  ];
}

/** Whether the pole has fallen or the cart has left the track. */
export function hasEnded([position, , angle]) {
  return Math.abs(position) > LARGEST_POSITION || Math.abs(angle) > LARGEST_ANGLE;
}
