// Replaces the live parts of the page by new ones, every two seconds. Without it the page reloads itself.
"use strict";
(() => {
    const every = 2000;
    const state = document.getElementById("live-state");
    async function refresh() {
        if (!document.hidden) {
            try {
                const answer = await fetch(location.href, { redirect: "error" });
                if (!answer.ok) throw new Error(answer.status);
                const page = new DOMParser().parseFromString(await answer.text(), "text/html");
                for (const part of page.querySelectorAll("[data-live]")) {
                    const old = document.getElementById(part.id);
                    // A button that has the focus stays.
                    if (old && !old.contains(document.activeElement)) old.replaceWith(part);
                }
                state.textContent = "live";
            } catch {
                state.textContent = "not connected";
            }
        }
        setTimeout(refresh, every);
    }
    setTimeout(refresh, every);
})();
