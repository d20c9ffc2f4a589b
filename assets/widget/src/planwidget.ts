// anywidget's entry of the planner, which is a bundle of its own: who debugs does not carry it along.
import { entry } from "./mount.js";
import { unpackPlan } from "./plan.js";
import { Planner } from "./planner.js";

export default entry({
  planner: {
    traits: ["payload"],
    show: (model, root, [payload]) => payload && new Planner(model, root, unpackPlan(payload)),
  },
});
